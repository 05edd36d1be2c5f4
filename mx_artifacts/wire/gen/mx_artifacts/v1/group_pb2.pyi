from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GroupProgress(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    GROUP_PROGRESS_UNSPECIFIED: _ClassVar[GroupProgress]
    GROUP_PROGRESS_FETCHING: _ClassVar[GroupProgress]
    GROUP_PROGRESS_STAGED: _ClassVar[GroupProgress]
    GROUP_PROGRESS_MOVED: _ClassVar[GroupProgress]
    GROUP_PROGRESS_FAILED: _ClassVar[GroupProgress]

class GroupPhase(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    GROUP_PHASE_UNSPECIFIED: _ClassVar[GroupPhase]
    GROUP_PHASE_OPEN: _ClassVar[GroupPhase]
    GROUP_PHASE_COMMIT: _ClassVar[GroupPhase]
    GROUP_PHASE_DONE: _ClassVar[GroupPhase]
    GROUP_PHASE_ABORTED: _ClassVar[GroupPhase]
GROUP_PROGRESS_UNSPECIFIED: GroupProgress
GROUP_PROGRESS_FETCHING: GroupProgress
GROUP_PROGRESS_STAGED: GroupProgress
GROUP_PROGRESS_MOVED: GroupProgress
GROUP_PROGRESS_FAILED: GroupProgress
GROUP_PHASE_UNSPECIFIED: GroupPhase
GROUP_PHASE_OPEN: GroupPhase
GROUP_PHASE_COMMIT: GroupPhase
GROUP_PHASE_DONE: GroupPhase
GROUP_PHASE_ABORTED: GroupPhase

class GroupReportRequest(_message.Message):
    __slots__ = ("group", "size", "member_id", "instance_id", "round_id", "progress", "artifact_id", "roots", "reason")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    ROUND_ID_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    ARTIFACT_ID_FIELD_NUMBER: _ClassVar[int]
    ROOTS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    group: str
    size: int
    member_id: str
    instance_id: str
    round_id: str
    progress: GroupProgress
    artifact_id: str
    roots: _containers.RepeatedScalarFieldContainer[str]
    reason: str
    def __init__(self, group: _Optional[str] = ..., size: _Optional[int] = ..., member_id: _Optional[str] = ..., instance_id: _Optional[str] = ..., round_id: _Optional[str] = ..., progress: _Optional[_Union[GroupProgress, str]] = ..., artifact_id: _Optional[str] = ..., roots: _Optional[_Iterable[str]] = ..., reason: _Optional[str] = ...) -> None: ...

class GroupMember(_message.Message):
    __slots__ = ("member_id", "progress")
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    member_id: str
    progress: GroupProgress
    def __init__(self, member_id: _Optional[str] = ..., progress: _Optional[_Union[GroupProgress, str]] = ...) -> None: ...

class GroupReportResponse(_message.Message):
    __slots__ = ("round_id", "phase", "reason", "members", "presence_seconds")
    ROUND_ID_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    PRESENCE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    round_id: str
    phase: GroupPhase
    reason: str
    members: _containers.RepeatedCompositeFieldContainer[GroupMember]
    presence_seconds: float
    def __init__(self, round_id: _Optional[str] = ..., phase: _Optional[_Union[GroupPhase, str]] = ..., reason: _Optional[str] = ..., members: _Optional[_Iterable[_Union[GroupMember, _Mapping]]] = ..., presence_seconds: _Optional[float] = ...) -> None: ...
