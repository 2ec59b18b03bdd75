"""The names of Langroid's module `langroid.agent.chat_document`, at the same path after `gesta.compat`."""

from gesta.compat.langroid.chat_document import ChatDocAttachment, ChatDocMetaData, ChatDocument
from gesta.compat.langroid.entities import StatusCode
from gesta.compat.langroid.task_log import LogFields as ChatDocLoggerFields

__all__ = ["ChatDocAttachment", "ChatDocLoggerFields", "ChatDocMetaData", "ChatDocument", "StatusCode"]
