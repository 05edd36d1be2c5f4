from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class AttachRequest(_message.Message):
    __slots__ = ("session_id",)
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    def __init__(self, session_id: _Optional[str] = ...) -> None: ...

class AttachEvent(_message.Message):
    __slots__ = ("lease_ttl_seconds",)
    LEASE_TTL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    lease_ttl_seconds: int
    def __init__(self, lease_ttl_seconds: _Optional[int] = ...) -> None: ...

class RenewLeasesRequest(_message.Message):
    __slots__ = ("session_id",)
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    def __init__(self, session_id: _Optional[str] = ...) -> None: ...

class RenewLeasesResponse(_message.Message):
    __slots__ = ("renewed",)
    RENEWED_FIELD_NUMBER: _ClassVar[int]
    renewed: int
    def __init__(self, renewed: _Optional[int] = ...) -> None: ...
