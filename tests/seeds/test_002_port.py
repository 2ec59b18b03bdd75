"""What Langroid's own tests found when they were run against `gesta.compat.langroid` (`.ci/theirs langroid`)."""

import gesta.compat.langroid as lr
from gesta.compat.langroid.language_models import MockLMConfig


def test_a_config_may_have_a_default_that_can_be_changed() -> None:
    class Config(lr.ChatAgentConfig):
        llm: MockLMConfig = MockLMConfig(default_response="DONE 1")
        notes: list[str] = ["a"]  # noqa: RUF012 - as pydantic allows it

    one, two = Config(), Config()
    one.llm.default_response, one.notes[0] = "DONE 2", "b"
    assert (two.llm.default_response, two.notes) == ("DONE 1", ["a"])
    assert lr.Task(lr.ChatAgent(one), interactive=False)[str].run("go") == "2"
