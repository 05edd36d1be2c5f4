"""A group's rounds as backends store them: one JSON text per group. No I/O here."""

from __future__ import annotations

import json
from dataclasses import asdict

from mx_artifacts.core.groups import Member, Phase, Progress, Round, Rounds
from mx_artifacts.metadata.json_fields import JsonFields


def rounds_to_json(rounds: Rounds) -> bytes:
    """Return the text of a group's rounds."""
    document = {"rounds": [asdict(each) for each in rounds]}
    return json.dumps(document, separators=(",", ":")).encode()


def rounds_from_json(text: bytes) -> Rounds:
    """Return the rounds.

    Raises:
        ValueError: says what is wrong with the text.
    """
    return tuple(_round(each) for each in JsonFields.parse(text, "ballots").items("rounds"))


def _round(value: object) -> Round:
    fields = JsonFields(value, "round")
    return Round(
        round_id=fields.text("round_id"),
        size=fields.integer("size"),
        changed_ms=fields.integer("changed_ms", bits=63),
        phase=Phase(fields.integer("phase")),
        members=tuple(map(_member, fields.items("members"))),
        reason=fields.text("reason"),
    )


def _member(value: object) -> Member:
    fields = JsonFields(value, "member")
    return Member(
        member_id=fields.text("member_id"),
        instance_id=fields.text("instance_id"),
        progress=Progress(fields.integer("progress")),
        seen_ms=fields.integer("seen_ms", bits=63),
        artifact_id=fields.text("artifact_id"),
        roots=tuple(map(str, fields.items("roots"))),
        reason=fields.text("reason"),
    )
