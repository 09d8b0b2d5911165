"""Has llama.cpp's own tests of its server start this one: a plugin for pytest, with which `cargo xtask clients --llama-server`
runs them as they are, in their folder:

    ANDANTE=PROGRAM python -m pytest -p llama_server

What does not apply is in llama_server.json, with reasons: whole files are left out, single tests are run all the same and must
fail, so that the list stays true.
"""

import json
import os
import pathlib
import subprocess

import pytest

HERE = pathlib.Path(__file__).parent
PROGRAM = os.environ["ANDANTE"]
APART = json.loads((HERE / "llama_server.json").read_text())
# Tests that are marked as slow ask large models to reason well, but for these, where the call that is forced leaves no choice.
FORCED = "test_completion_with_required_tool_real_model[tool"
# Settings that are about speed, models or test runs, or about what is always so here.
PASSED_OVER = {
    "cache_ram", "debug", "external_server", "fa", "jinja", "model_file", "model_hf_file", "model_hf_repo", "n_batch", "n_predict",
    "n_slots", "n_threads", "n_ubatch", "offline", "process", "reasoning_format", "seed", "server_continuous_batching",
    "server_embeddings", "server_host", "server_metrics", "server_port", "temperature",
}  # fmt: skip
# The templates that llama.cpp has by name.
TEMPLATES = {
    "chatml": HERE / "chatml.jinja",
    "llama3": pathlib.Path("../../../models/templates/meta-llama-Llama-3.1-8B-Instruct.jinja"),
}
# Settings by their names in the tests, and what gives the same here.
GIVEN = {
    "api_key": lambda key: ["--api-key", key],
    "chat_template": lambda name: ["--chat-template-file", TEMPLATES[name]],
    "chat_template_file": lambda path: ["--chat-template-file", path],
    "cors_origins": lambda origins: [] if origins == "localhost" else ["--cors-origin", origins],
    "model_alias": lambda name: ["--alias", name],
    "n_ctx": lambda total: [],
    "pooling": lambda name: ["--pooling", name],
    "reasoning": lambda mode: {"auto": []}[mode],
}


def arguments(server):
    """What gives a server as a test wants it; a KeyError where nothing does."""
    sessions = server.n_slots or 4
    yield from ("--sessions", str(sessions), "--drain-s", "0")
    if server.n_ctx:
        yield from ("--ctx", str(server.n_ctx // sessions))
    for name, value in vars(server).items():
        if name not in PASSED_OVER and value != getattr(type(server), name, None):
            yield from map(str, GIVEN[name](value))


def start(server, timeout_seconds=None):
    import utils

    server.process = subprocess.Popen(
        [PROGRAM, "serve", "--port", "0", *arguments(server)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    utils.server_instances.add(server)
    server.server_port = int(server.process.stdout.readline().rpartition(":")[2])


def pytest_configure():
    import utils

    utils.ServerProcess.start = start
    # It would fetch the models of all tests.
    utils.ServerPreset.load_all = lambda: None


def pytest_ignore_collect(collection_path):
    return collection_path.name in APART["files"] or None


def is_slow(item):
    is_forced = item.name.startswith(FORCED) and "-success-" in item.name
    return item.get_closest_marker("slow") is not None and not is_forced


def pytest_collection_modifyitems(config, items):
    slow = [item for item in items if is_slow(item)]
    config.hook.pytest_deselected(items=slow)
    items[:] = [item for item in items if item not in slow]
    reasons = {test: why for why, tests in APART["tests"].items() for test in tests}
    used = set()
    for item in items:
        test = item.nodeid.removeprefix("unit/")
        for name in (test, test.partition("[")[0]):
            if name in reasons:
                used.add(name)
                item.add_marker(pytest.mark.xfail(reason=reasons[name], strict=True))
    folder = config.rootpath / "unit"
    gone = reasons.keys() - used | {file for file in APART["files"] if not (folder / file).exists()}
    if gone:
        raise pytest.UsageError(f"no such tests any more: {', '.join(sorted(gone))}")
