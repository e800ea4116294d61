"""Programs with one known fault each as questions to the tools for agents, asked by a script without a model.

For the recording of each fault (results/nvidia-h200/faults, held_out) one question is asked: what is wrong, where, and
what would mending it gain? The script knows the fault of none. It makes these calls, at most six:

  summary   in 150 words: the time of a step
  advice    the two pieces with the largest savings of at least 5 % are the answer
  explain   of each of the two, the row or the event that it rests on, which must be tied to it
  what_if   the time after following both
  compare   with the recording of the mended program, where there is one

The answer is checked against pairs.json, which tells what was wrong and the times before and after, without a profiler.
found: one of the two is a rule that names the fault, and its evidence is explained. first: it is the first. gain: its
saving is within a factor of two of the measured one. Faults whose mending gained less than 5 % are not judged.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness import HERE, ROOT, Report, arguments

MOST_CALLS = 6
WORDS = 150
ANSWERS = 2
FACTOR = 2.0
WORTH = 5.0
"""Percent of a step: the least saving that counts as a fault."""
RECORDED = HERE / "results" / "nvidia-h200"


class Client:
    """A client of ``flopscope mcp``, which sends one request after the other."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "flopscope", "mcp", *arguments]
        self._server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT)
        self._number = 0
        self.calls: list[str] = []
        """The tools that were called."""
        self.words = 0
        """Words of the texts that came back."""
        about = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "eval", "version": "1"}}
        self.request("initialize", about)

    def request(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request and return its result. Raise RuntimeError for an error."""
        self._number += 1
        line = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        assert self._server.stdin is not None and self._server.stdout is not None
        self._server.stdin.write(json.dumps(line).encode() + b"\n")
        self._server.stdin.flush()
        response = json.loads(self._server.stdout.readline())
        if "error" in response or response["result"].get("isError"):
            raise RuntimeError(f"{method} {params}: {response}")
        result: dict[str, Any] = response["result"]
        return result

    def call(self, tool: str, **given: Any) -> dict[str, Any]:
        """Call a tool and return its document."""
        self.calls.append(tool)
        result = self.request("tools/call", {"name": tool, "arguments": given})
        self.words += len(result["content"][0]["text"].split())
        document: dict[str, Any] = result["structuredContent"]
        return document

    def close(self) -> None:
        """End the server."""
        self._server.communicate(timeout=60)


def diagnosis(client: Client, name: str, has_after: bool) -> dict[str, Any]:
    """Return what the tools say is wrong with a program: at most two pieces of advice, the larger saving first."""
    before = f"{name}_before.json.gz"
    summary = client.call("summary", path=before, budget=WORDS)
    answer: dict[str, Any] = {"step_us": summary["accounting"][-1]["total_us"] / max(len(summary["steps"]), 1)}
    advice = client.call("advice", path=before)["advice"]
    answer["advice"] = [one for one in advice if one["saving_pct"] >= WORTH][:ANSWERS]
    for one in answer["advice"]:
        one["where"], one["is_tied"] = explained(client, before, one)
    if answer["advice"]:
        rules = [one["rule"] for one in answer["advice"]]
        answer["what_if_pct"] = client.call("what_if", path=before, rules=rules)["saving_pct"]
    if has_after:
        answer["slowdown_pct"] = client.call("compare", a=before, b=f"{name}_after.json.gz", top=3)["slowdown_pct"]
    return answer


def explained(client: Client, path: str, advice: Mapping[str, Any]) -> tuple[str | None, bool]:
    """Return the op or event that a piece of advice rests on, and whether its explanation names this advice."""
    evidence = next(iter(advice["evidence"]), {})
    if evidence.get("row"):
        found = client.call("explain", path=path, row=evidence["row"])
        return found["row"]["key"], advice["rule"] in {one["rule"] for one in found["advice"]}
    if evidence.get("event") is not None:
        name = client.call("explain", path=path, event=evidence["event"])["event"]["name"]
        return name, name == evidence["op"]
    return None, True  # it rests on no single row or event, such as on all idle time


def judged(answer: Mapping[str, Any], pair: Mapping[str, Any]) -> dict[str, Any]:
    """Return whether an answer names the fault, and whether its saving is the measured gain; None: not judged."""
    gain = 100 * (1 - pair["after_ms"] / pair["before_ms"])
    facts = {"measured_pct": gain, "found": None, "first": None, "gain": None, "saving_pct": None, "rule": None}
    if not pair["rules"] or gain < WORTH:
        return facts
    right = [one for one in answer["advice"] if one["rule"] in pair["rules"] and one["is_tied"]]
    if not right:
        return {**facts, "found": False, "first": False, "gain": False}
    saving = right[0]["saving_pct"]
    close = gain / FACTOR <= saving <= gain * FACTOR
    first = right[0] is answer["advice"][0]
    return {**facts, "found": True, "first": first, "gain": close, "saving_pct": saving, "rule": right[0]["rule"]}


def questions() -> list[tuple[Path, str, dict[str, Any]]]:
    """Return the folder, the name and the facts of each fault whose recording is here."""
    found = []
    for folder in (RECORDED / "faults", RECORDED / "held_out"):
        pairs = json.loads((folder / "pairs.json").read_text(encoding="utf-8"))
        found += [
            (folder, name, pair)
            for name, pair in pairs.items()
            if "error" not in pair and (folder / f"{name}_before.json.gz").exists()
        ]
    return found


def asked(client: Client, folder: Path, name: str, pair: Mapping[str, Any]) -> dict[str, Any]:
    """Ask one question and return the judged answer with what it took."""
    client.calls, client.words = [], 0
    begin = time.perf_counter()
    answer = diagnosis(client, name, (folder / f"{name}_after.json.gz").exists())
    seconds = time.perf_counter() - begin
    took = {"calls": len(client.calls), "words": client.words, "seconds": seconds}
    return {"fault": name, **answer, **judged(answer, pair), **took}


def main() -> None:
    options = arguments(__doc__ or "")
    columns = ["fault", "calls", "words", "seconds", "saving", "measured", "rule", "found", "first", "gain"]
    report = Report("agents", columns, options.out, options.device)
    rows = []
    clients = {folder: Client(str(folder)) for folder, _, _ in questions()}
    for folder, name, pair in questions():
        row = asked(clients[folder], folder, name, pair)
        rows.append(row)
        shares = ("--" if row[key] is None else f"{row[key]:.0f} %" for key in ("saving_pct", "measured_pct"))
        verdicts = ("--" if row[key] is None else "yes" if row[key] else "NO" for key in ("found", "first", "gain"))
        took = (str(row["calls"]), str(row["words"]), f"{row['seconds']:.2f}")
        report.row(name, *took, *shares, row["rule"] or "--", *verdicts)
        report.keep(name, {"tools": [row["seconds"]]}, calls=row["calls"], words=row["words"])
    for client in clients.values():
        client.close()
    known = [row for row in rows if row["found"] is not None]
    found, first, gain = (sum(row[key] for row in known) for key in ("found", "first", "gain"))
    words = [row["words"] for row in rows]
    report.target("faults found", found / len(known), 1.0, "of all", least=True)
    report.target("calls for a fault", max(row["calls"] for row in rows), MOST_CALLS, "calls")
    report.note(f"{found} of {len(known)} faults found, {first} by the first advice; {gain} gains within a factor of 2")
    report.note(f"words of the answers: {statistics.median(words):.0f} in the median, {max(words)} at most")
    report.finish()


if __name__ == "__main__":
    main()
