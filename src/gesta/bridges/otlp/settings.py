"""The settings of an exporter: arguments of the program, or else the environment variables of OpenTelemetry.

A span is a step of a run with its start and end, in OpenTelemetry's form.

Source: OpenTelemetry specification 1.56, "OTLP Exporter Configuration" and "Environment Variable Specification", and
OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT of its Python instrumentations, read 2026-11.
"""

import os
from collections.abc import Mapping
from typing import Literal
from urllib.parse import unquote, urlsplit, urlunsplit

from msgspec import Struct

from gesta.errors import GestaError
from gesta.text.redactor import SECRETS

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
HEADERS, TRACES_HEADERS = "OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"
CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
SAMPLERS = {
    "always_on": (1.0, False),
    "always_off": (0.0, False),
    "traceidratio": (None, False),
    "parentbased_always_on": (1.0, True),
    "parentbased_always_off": (0.0, True),
    "parentbased_traceidratio": (None, True),
}
"""For each sampler, two values: the share of runs that are sent, and whether it follows the caller's choice.

The share is `None` if OTEL_TRACES_SAMPLER_ARG states it.
"""
MOST_WAIT_S, MOST_ASKED_S = 60.0, 600.0
"""Longest pause between two tries in seconds, and the longest one if the receiver asks for a pause."""
PROTOCOLS = ("http/protobuf", "http/json")
Signal = Literal["traces", "metrics"]


class TracingError(GestaError):
    """A setting of tracing is wrong, or spans cannot be sent to the receiver."""


class Settings(Struct, frozen=True, kw_only=True):
    """The settings of an exporter: where to send spans and metrics, and which spans to send."""

    endpoint: str
    """Base address of the receiver, such as `http://127.0.0.1:4318`; `/v1/traces` or `/v1/metrics` is added to it."""
    traces: str
    """Address for spans; empty to send none."""
    metrics: str
    """Address for metrics; empty to send none."""
    headers: Mapping[str, str] = {}
    """Headers of each request. Their values are secrets: no log, error or record contains them."""
    json: bool = False
    """Whether messages are sent as JSON instead of protobuf."""
    gzip: bool = False
    timeout_s: float = 10.0
    content: bool = False
    """Whether spans contain the texts of messages, calls and results."""
    ratio: float = 1.0
    """The share of root runs (runs that no other run started) whose spans are sent, from 0 to 1."""
    heeds: bool = True
    """Whether to leave out a turn if the caller's trace context says that its trace is not sampled."""
    resource: Mapping[str, str] = {}
    """Attributes of this program, such as `service.name`."""
    wait_s: float = 1.0
    """Seconds before the second try. Each further pause is twice as long, up to `MOST_WAIT_S`."""
    every_s: float = 60.0
    """Seconds between two messages of metrics."""


def settings(
    endpoint: str | None = None,
    *,
    headers: Mapping[str, str] | None = None,
    content: bool | None = None,
    sample: float | None = None,
    environment: Mapping[str, str] | None = None,
) -> Settings | None:
    """Return the settings of an exporter; `None` if neither the call nor a variable names an endpoint.

    Args:
        endpoint: base address of the receiver; by default the address in the variables.
        headers: headers of each request, in addition to those in the variables.
        content: whether spans contain the texts of messages, calls and results; by default as the variable says, or
            not.
        sample: the share of root runs whose spans are sent, from 0 to 1; by default as the variables say.
        environment: the environment variables; by default those of the process.

    Raises:
        TracingError: a setting has a wrong value.
    """
    given = os.environ if environment is None else environment
    if endpoint is None and (given.get("OTEL_SDK_DISABLED", "").lower() == "true" or not _named(given)):
        return None
    ratio, heeds = _sampler(given) if sample is None else (sample, True)
    if not 0 <= ratio <= 1:
        raise TracingError(f"The share of runs is {ratio}, expected a number from 0 to 1.")
    base = endpoint or given.get(ENDPOINT) or ""
    told = _headers(given, headers or {})
    protocol = given.get("OTEL_EXPORTER_OTLP_PROTOCOL") or PROTOCOLS[0]
    if protocol not in PROTOCOLS:
        raise TracingError(f"OTEL_EXPORTER_OTLP_PROTOCOL is {protocol!r}, expected one of: {', '.join(PROTOCOLS)}.")
    return Settings(
        endpoint=base,
        traces=_address("traces", base, endpoint, given),
        metrics=_address("metrics", base, endpoint, given),
        headers=told,
        json=protocol == PROTOCOLS[1],
        gzip=given.get("OTEL_EXPORTER_OTLP_COMPRESSION", "").lower() == "gzip",
        timeout_s=_seconds(given, "OTEL_EXPORTER_OTLP_TIMEOUT", 10_000),
        every_s=_seconds(given, "OTEL_METRIC_EXPORT_INTERVAL", 60_000),
        content=given.get(CONTENT, "").lower() in ("true", "1", "span_only", "span_and_event")
        if content is None
        else content,
        ratio=ratio,
        heeds=heeds,
        resource=resource_of(given),
    )


def _headers(given: Mapping[str, str], more: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of each request: from the environment variables, then from `more`.

    The values are registered as secrets, so that they are replaced in every text that is shown or written.
    """
    told = _pairs(given.get(HEADERS, ""), HEADERS)
    told |= _pairs(given.get(TRACES_HEADERS, ""), TRACES_HEADERS) | {name.lower(): more[name] for name in more}
    for name, value in told.items():
        SECRETS.add(f"header {name}", value)
        SECRETS.add(f"header {name}", value.rpartition(" ")[2])
    return told


def _named(given: Mapping[str, str]) -> bool:
    return bool(given.get(ENDPOINT) or given.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"))


def _address(signal: Signal, base: str, said: str | None, given: Mapping[str, str]) -> str:
    """Return the address to which a signal is sent; an empty text if none is set, or a variable turns the signal off.

    Args:
        signal: `traces` or `metrics`.
        base: the address for all signals, to which the signal's path is appended.
        said: the argument of the program from which `base` was taken; `None` if `base` is from the environment. Only
            then may a variable of the signal's own take the place of `base`.
        given: the environment variables.

    Raises:
        TracingError: the address is not an HTTP address.
    """
    if given.get(f"OTEL_{signal.upper()}_EXPORTER", "otlp") == "none":
        return ""
    own = given.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT") if said is None else None
    address = own or base
    if not address:
        return ""
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise TracingError(f"{address!r} is not an address to send to, expected one such as http://127.0.0.1:4318.")
    if own:
        return own
    path = parts.path.rstrip("/")
    for known in ("/v1/traces", "/v1/metrics"):
        path = path.removesuffix(known)
    return urlunsplit(parts._replace(path=f"{path}/v1/{signal}"))


def _pairs(text: str, name: str) -> dict[str, str]:
    """Return the pairs of a text `key=value,key=value`, whose values are percent-encoded.

    Raises TracingError, which contains `name`, for a part without a key or an equals sign.
    """
    found = {}
    for each in text.split(","):
        key, separator, value = each.partition("=")
        if each.strip() and (not separator or not key.strip()):
            raise TracingError(f"{name} holds a part that is not NAME=VALUE. Write NAME=VALUE,NAME=VALUE.")
        if each.strip():
            found[key.strip().lower()] = unquote(value.strip())
    return found


def _sampler(given: Mapping[str, str]) -> tuple[float, bool]:
    name = given.get("OTEL_TRACES_SAMPLER") or "parentbased_always_on"
    if name not in SAMPLERS:
        raise TracingError(f"OTEL_TRACES_SAMPLER is {name!r}, expected one of: {', '.join(SAMPLERS)}.")
    ratio, heeds = SAMPLERS[name]
    if ratio is None:
        said = given.get("OTEL_TRACES_SAMPLER_ARG") or "1"
        try:
            ratio = float(said)
        except ValueError:
            raise TracingError(f"OTEL_TRACES_SAMPLER_ARG is {said!r}, expected a number from 0 to 1.") from None
    return ratio, heeds


def _seconds(given: Mapping[str, str], name: str, default_ms: int) -> float:
    text = given.get(name) or str(default_ms)
    try:
        return max(0.001, float(text) / 1000)
    except ValueError:
        raise TracingError(f"{name} is {text!r}, expected milliseconds, such as {default_ms}.") from None


def resource_of(given: Mapping[str, str]) -> dict[str, str]:
    """Return the attributes of this program from environment variables.

    Raises TracingError if a variable has a wrong form.
    """
    found = _pairs(given.get("OTEL_RESOURCE_ATTRIBUTES", ""), "OTEL_RESOURCE_ATTRIBUTES")
    if given.get("OTEL_SERVICE_NAME"):
        found["service.name"] = given["OTEL_SERVICE_NAME"]
    return {"service.name": "gesta"} | found
