from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AttachRequest(_message.Message):
    __slots__ = ("session_id", "transports")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    TRANSPORTS_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    transports: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, session_id: _Optional[str] = ..., transports: _Optional[_Iterable[str]] = ...) -> None: ...

class AttachEvent(_message.Message):
    __slots__ = ("lease_ttl_seconds", "encodings", "max_bytes_per_second", "transport")
    LEASE_TTL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    ENCODINGS_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    TRANSPORT_FIELD_NUMBER: _ClassVar[int]
    lease_ttl_seconds: int
    encodings: _containers.RepeatedScalarFieldContainer[str]
    max_bytes_per_second: int
    transport: str
    def __init__(self, lease_ttl_seconds: _Optional[int] = ..., encodings: _Optional[_Iterable[str]] = ..., max_bytes_per_second: _Optional[int] = ..., transport: _Optional[str] = ...) -> None: ...

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

class Artifact(_message.Message):
    __slots__ = ("mx_source_id", "artifact_id")
    MX_SOURCE_ID_FIELD_NUMBER: _ClassVar[int]
    ARTIFACT_ID_FIELD_NUMBER: _ClassVar[int]
    mx_source_id: str
    artifact_id: str
    def __init__(self, mx_source_id: _Optional[str] = ..., artifact_id: _Optional[str] = ...) -> None: ...

class LeaseArtifactRequest(_message.Message):
    __slots__ = ("artifact", "session_id", "serves_on")
    ARTIFACT_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    SERVES_ON_FIELD_NUMBER: _ClassVar[int]
    artifact: Artifact
    session_id: str
    serves_on: bool
    def __init__(self, artifact: _Optional[_Union[Artifact, _Mapping]] = ..., session_id: _Optional[str] = ..., serves_on: bool = ...) -> None: ...

class ResidentBundle(_message.Message):
    __slots__ = ("file_index", "addr", "length", "device_id")
    FILE_INDEX_FIELD_NUMBER: _ClassVar[int]
    ADDR_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    file_index: int
    addr: int
    length: int
    device_id: int
    def __init__(self, file_index: _Optional[int] = ..., addr: _Optional[int] = ..., length: _Optional[int] = ..., device_id: _Optional[int] = ...) -> None: ...

class LeaseArtifactResponse(_message.Message):
    __slots__ = ("lease_id", "source_metadata", "bundles")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    SOURCE_METADATA_FIELD_NUMBER: _ClassVar[int]
    BUNDLES_FIELD_NUMBER: _ClassVar[int]
    lease_id: str
    source_metadata: bytes
    bundles: _containers.RepeatedCompositeFieldContainer[ResidentBundle]
    def __init__(self, lease_id: _Optional[str] = ..., source_metadata: _Optional[bytes] = ..., bundles: _Optional[_Iterable[_Union[ResidentBundle, _Mapping]]] = ...) -> None: ...

class PrepareBlockRequest(_message.Message):
    __slots__ = ("artifact", "session_id", "file_index", "offset", "length", "accept")
    ARTIFACT_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    FILE_INDEX_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    ACCEPT_FIELD_NUMBER: _ClassVar[int]
    artifact: Artifact
    session_id: str
    file_index: int
    offset: int
    length: int
    accept: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, artifact: _Optional[_Union[Artifact, _Mapping]] = ..., session_id: _Optional[str] = ..., file_index: _Optional[int] = ..., offset: _Optional[int] = ..., length: _Optional[int] = ..., accept: _Optional[_Iterable[str]] = ...) -> None: ...

class PrepareBlockResponse(_message.Message):
    __slots__ = ("lease_id", "source_metadata", "addr", "device_id", "stored_length", "encoding")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    SOURCE_METADATA_FIELD_NUMBER: _ClassVar[int]
    ADDR_FIELD_NUMBER: _ClassVar[int]
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    STORED_LENGTH_FIELD_NUMBER: _ClassVar[int]
    ENCODING_FIELD_NUMBER: _ClassVar[int]
    lease_id: str
    source_metadata: bytes
    addr: int
    device_id: int
    stored_length: int
    encoding: str
    def __init__(self, lease_id: _Optional[str] = ..., source_metadata: _Optional[bytes] = ..., addr: _Optional[int] = ..., device_id: _Optional[int] = ..., stored_length: _Optional[int] = ..., encoding: _Optional[str] = ...) -> None: ...

class MemberIndexPage(_message.Message):
    __slots__ = ("file_index", "paths", "directories", "sizes", "modes", "mtimes_ns", "crc32c", "block_counts", "block_crc32c")
    FILE_INDEX_FIELD_NUMBER: _ClassVar[int]
    PATHS_FIELD_NUMBER: _ClassVar[int]
    DIRECTORIES_FIELD_NUMBER: _ClassVar[int]
    SIZES_FIELD_NUMBER: _ClassVar[int]
    MODES_FIELD_NUMBER: _ClassVar[int]
    MTIMES_NS_FIELD_NUMBER: _ClassVar[int]
    CRC32C_FIELD_NUMBER: _ClassVar[int]
    BLOCK_COUNTS_FIELD_NUMBER: _ClassVar[int]
    BLOCK_CRC32C_FIELD_NUMBER: _ClassVar[int]
    file_index: int
    paths: _containers.RepeatedScalarFieldContainer[str]
    directories: _containers.RepeatedScalarFieldContainer[bool]
    sizes: _containers.RepeatedScalarFieldContainer[int]
    modes: _containers.RepeatedScalarFieldContainer[int]
    mtimes_ns: _containers.RepeatedScalarFieldContainer[int]
    crc32c: _containers.RepeatedScalarFieldContainer[int]
    block_counts: _containers.RepeatedScalarFieldContainer[int]
    block_crc32c: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, file_index: _Optional[int] = ..., paths: _Optional[_Iterable[str]] = ..., directories: _Optional[_Iterable[bool]] = ..., sizes: _Optional[_Iterable[int]] = ..., modes: _Optional[_Iterable[int]] = ..., mtimes_ns: _Optional[_Iterable[int]] = ..., crc32c: _Optional[_Iterable[int]] = ..., block_counts: _Optional[_Iterable[int]] = ..., block_crc32c: _Optional[_Iterable[int]] = ...) -> None: ...

class BundleRange(_message.Message):
    __slots__ = ("file_index", "offset", "length")
    FILE_INDEX_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    file_index: int
    offset: int
    length: int
    def __init__(self, file_index: _Optional[int] = ..., offset: _Optional[int] = ..., length: _Optional[int] = ...) -> None: ...

class Availability(_message.Message):
    __slots__ = ("complete", "ranges")
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    complete: bool
    ranges: _containers.RepeatedCompositeFieldContainer[BundleRange]
    def __init__(self, complete: bool = ..., ranges: _Optional[_Iterable[_Union[BundleRange, _Mapping]]] = ...) -> None: ...

class DamageReport(_message.Message):
    __slots__ = ("artifact", "file_index", "offset", "length")
    ARTIFACT_FIELD_NUMBER: _ClassVar[int]
    FILE_INDEX_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    artifact: Artifact
    file_index: int
    offset: int
    length: int
    def __init__(self, artifact: _Optional[_Union[Artifact, _Mapping]] = ..., file_index: _Optional[int] = ..., offset: _Optional[int] = ..., length: _Optional[int] = ...) -> None: ...

class DamageAnswer(_message.Message):
    __slots__ = ("is_damaged",)
    IS_DAMAGED_FIELD_NUMBER: _ClassVar[int]
    is_damaged: bool
    def __init__(self, is_damaged: bool = ...) -> None: ...
