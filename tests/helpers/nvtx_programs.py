"""Programs and libraries that call NVTX, each run in a process of its own: a library asks for its tool only once."""

import importlib.util
import json
import os
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from helpers import ROOT
from helpers.run_programs import done

VARIABLE = "NVTX_INJECTION64_PATH"

LIBRARY = r"""
#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtPayload.h>

void push(const char *text) { nvtxRangePushA(text); }
void push_wide(void) { nvtxRangePushW(L"w\u00e4chst"); }
int pop(void) { return nvtxRangePop(); }
void push_in(const char *domain, const char *text) {
    nvtxEventAttributes_t attributes = {0};
    attributes.version = NVTX_VERSION;
    attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
    attributes.message.ascii = text;
    nvtxDomainRangePushEx(nvtxDomainCreateA(domain), &attributes);
}
int pop_in(const char *domain) { return nvtxDomainRangePop(nvtxDomainCreateA(domain)); }

/* As NCCL does. */
typedef struct { uint64_t communicator; size_t size; } message;
static const nvtxPayloadSchemaEntry_t entries[] = {
    {0, NVTX_PAYLOAD_ENTRY_TYPE_UINT64, "NCCL communicator ID", "", 0, offsetof(message, communicator), 0, 0},
    {0, NVTX_PAYLOAD_ENTRY_TYPE_SIZE, "Message size [bytes]", "", 0, offsetof(message, size), 0, 0},
};
void push_all_reduce(uint64_t communicator, size_t size) {
    nvtxDomainHandle_t domain = nvtxDomainCreateA("NCCL");
    nvtxStringHandle_t name = nvtxDomainRegisterStringA(domain, "ncclAllReduce");
    nvtxPayloadSchemaAttr_t schema = {0};
    schema.fieldMask = NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_TYPE | NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_ENTRIES |
                       NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NUM_ENTRIES | NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_STATIC_SIZE;
    schema.type = NVTX_PAYLOAD_SCHEMA_TYPE_STATIC;
    schema.entries = entries;
    schema.numEntries = 2;
    schema.payloadStaticSize = sizeof(message);
    message sent = {communicator, size};
    nvtxPayloadData_t data = {nvtxPayloadSchemaRegister(domain, &schema), sizeof sent, &sent};
    nvtxEventAttributes_t attributes = {0};
    attributes.version = NVTX_VERSION;
    attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    attributes.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    attributes.message.registered = name;
    attributes.payloadType = NVTX_PAYLOAD_TYPE_EXT;
    attributes.reserved0 = 1;
    attributes.payload.ullValue = (uint64_t)(uintptr_t)&data;
    nvtxDomainRangePushEx(domain, &attributes);
}

int main(void) { push("of a program"); return pop() == 12345; }
"""

needs_package = pytest.mark.skipif(importlib.util.find_spec("nvtx") is None, reason="no nvtx: pip install nvtx")


def headers() -> Path | None:
    """Return the folder with NVTX's headers of the CUDA toolkit or of NVIDIA's wheels; None without either."""
    homes = [Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    homes += [*sorted(Path("/usr/local").glob("cuda*"), reverse=True)]
    homes += [*Path(sysconfig.get_path("purelib")).glob("nvidia/*")]
    found = (home / "include" for home in homes)
    return next((path for path in found if (path / "nvtx3" / "nvToolsExtPayload.h").exists()), None)


needs_headers = pytest.mark.skipif(
    headers() is None or shutil.which("cc") is None, reason="no headers of NVTX (CUDA toolkit), or no C compiler"
)


def compiled(folder: Path, *options: str) -> str:
    """Return the path of the library, or with other options than -shared of the program, compiled from LIBRARY."""
    source, target = folder / "uses_nvtx.c", folder / f"uses_nvtx{len(options)}"
    source.write_text(LIBRARY)
    command = ["cc", *options, "-I", str(headers()), str(source), "-o", str(target), "-ldl"]
    subprocess.run(command, check=True, capture_output=True)
    return str(target)


def paths() -> str:
    """Return the PYTHONPATH of processes that need the package nvtx, from wherever this one has it."""
    spec = importlib.util.find_spec("nvtx")
    more = [] if spec is None or spec.origin is None else [str(Path(spec.origin).parent.parent)]
    return os.pathsep.join([str(ROOT), *more])


def printed(folder: Path, program: str, *arguments: str, **more: str) -> Any:
    """Return the JSON that a program prints last, after a check that it succeeded."""
    ended = done(folder, ["-c", program, *arguments], PYTHONPATH=paths(), **more)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])
