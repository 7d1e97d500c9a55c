"""Names of attributes, events, metrics and providers, as the semantic conventions have them.

They are written down here and not imported: the conventions for generative AI are in development, and the package that
holds their names may drop one. A test compares each with the package. What the conventions have no name for is called
`plait.` something.
"""

from __future__ import annotations

OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
AGENT = "gen_ai.agent.name"
CONVERSATION = "gen_ai.conversation.id"
OUTPUT_TYPE = "gen_ai.output.type"

REQUEST_MODEL = "gen_ai.request.model"
REQUEST_STREAM = "gen_ai.request.stream"
REQUEST_STOP = "gen_ai.request.stop_sequences"
REQUEST_MAX_TOKENS = "gen_ai.request.max_tokens"
REQUEST = {
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "frequency_penalty": "gen_ai.request.frequency_penalty",
    "presence_penalty": "gen_ai.request.presence_penalty",
}
"""Fields of a request's body that are numbers, and their attributes."""
REQUEST_WHOLE = {"seed": "gen_ai.request.seed", "top_k": "gen_ai.request.top_k", "n": "gen_ai.request.choice.count"}
"""The same for whole numbers."""

RESPONSE_MODEL = "gen_ai.response.model"
FINISH_REASONS = "gen_ai.response.finish_reasons"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
CACHED_TOKENS = "gen_ai.usage.cache_read.input_tokens"

TOOL_NAME = "gen_ai.tool.name"
TOOL_TYPE = "gen_ai.tool.type"
TOOL_DESCRIPTION = "gen_ai.tool.description"
TOOL_CALL_ID = "gen_ai.tool.call.id"

# Content: only when it is asked for.
INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"
TOOL_DEFINITIONS = "gen_ai.tool.definitions"
TOOL_ARGUMENTS = "gen_ai.tool.call.arguments"
TOOL_RESULT = "gen_ai.tool.call.result"

ERROR_TYPE = "error.type"
SERVER_ADDRESS = "server.address"
SERVER_PORT = "server.port"
STATUS_CODE = "http.response.status_code"

# Metrics.
TOKEN_USAGE = "gen_ai.client.token.usage"
DURATION = "gen_ai.client.operation.duration"
TOKEN_TYPE = "gen_ai.token.type"

INVOKE_AGENT, CHAT, COMPLETION, EXECUTE_TOOL = "invoke_agent", "chat", "text_completion", "execute_tool"
"""Operations."""

# Our own.
RUN = "plait.run.id"
RUN_STATUS = "plait.run.status"
RUN_STEPS = "plait.run.steps"
RUN_RESUMED = "plait.run.resumed"
RUN_PARENT = "plait.run.parent"
RUN_FORK_AT = "plait.run.fork_at"
RUN_LABEL = "plait.run.label"
LIMIT = "plait.run.limit"
STEP = "plait.step"
PHASE = "plait.phase"
REPAIR = "plait.repair"
MODEL_SPEC = "plait.model.spec"
ATTEMPTS = "plait.attempts"
ATTEMPT = "plait.attempt"
ESTIMATED = "plait.usage.estimated"
COST = "plait.cost_usd"
TROUBLE = "plait.tool.trouble"
CANCELLED = "plait.cancelled"
CODE_GOES_ON = "plait.code.goes_on"
CODE_CALLS = "plait.code.calls"
CODE = "plait.code"
CODE_OUTPUT = "plait.code.output"
MESSAGE = "plait.message"

RETRY = "plait.attempt_failed"
"""The event of an attempt that brought no reply."""
EXECUTE_CODE = "execute_code"
"""The name of the span of a piece of code, for which the conventions have no operation."""

PROVIDERS = {
    "xai": "x_ai",
    "mistral": "mistral_ai",
    "gemini": "gcp.gemini",
    "vertex": "gcp.vertex_ai",
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "watsonx": "ibm.watsonx.ai",
}
"""The conventions' names of providers that we call otherwise; all others bear the name that stands before the colon."""
