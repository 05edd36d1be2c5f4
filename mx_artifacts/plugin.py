"""What a package needs that adds a cache kind, a metadata backend or a transport.

Such a package declares entry points (docs/adr/0013), which are loaded only when they are asked for:

    [project.entry-points."mx_artifacts.kinds"]
    aiter = "aiter_mx:KIND"            # a CacheKind with shares_source_type=True

    [project.entry-points."mx_artifacts.metadata_backends"]
    etcd = "etcd_mx:make_backend"      # takes the URL, returns a MetadataBackend

    [project.entry-points."mx_artifacts.transports"]
    shm = "shm_mx:ShmTransport"        # takes the agent's name, returns a Transport

Names load on first use, as those of `mx_artifacts` do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mx_artifacts.runtime.lazy import lazy_exports

if TYPE_CHECKING:
    from mx_artifacts.bundle.entry import EntryFile as EntryFile
    from mx_artifacts.bundle.entry import EntryView as EntryView
    from mx_artifacts.bundle.entry import ReadContent as ReadContent
    from mx_artifacts.bundle.rules import PackRules as PackRules
    from mx_artifacts.bundle.rules import each_file as each_file
    from mx_artifacts.bundle.rules import first_parts as first_parts
    from mx_artifacts.bundle.rules import no_fault as no_fault
    from mx_artifacts.core.foreign_text import shown as shown
    from mx_artifacts.core.identity import AnyBackendFramework as AnyBackendFramework
    from mx_artifacts.core.identity import AnySourceType as AnySourceType
    from mx_artifacts.core.identity import BackendFramework as BackendFramework
    from mx_artifacts.core.identity import SourceIdentity as SourceIdentity
    from mx_artifacts.core.identity import SourceType as SourceType
    from mx_artifacts.core.sources import ArtifactSummary as ArtifactSummary
    from mx_artifacts.core.sources import PodIdentity as PodIdentity
    from mx_artifacts.core.sources import SourceQuery as SourceQuery
    from mx_artifacts.core.sources import SourceRef as SourceRef
    from mx_artifacts.core.sources import SourceStatus as SourceStatus
    from mx_artifacts.core.sources import StoredWorker as StoredWorker
    from mx_artifacts.core.sources import TensorDescriptor as TensorDescriptor
    from mx_artifacts.core.sources import WorkerRecord as WorkerRecord
    from mx_artifacts.core.sources import supersedes as supersedes
    from mx_artifacts.filesystem.regular_file import read_regular_file as read_regular_file
    from mx_artifacts.kinds.base import NEVER_PACKED as NEVER_PACKED
    from mx_artifacts.kinds.base import CacheKind as CacheKind
    from mx_artifacts.kinds.base import EntryVerdict as EntryVerdict
    from mx_artifacts.kinds.base import ExistingEntryRule as ExistingEntryRule
    from mx_artifacts.kinds.base import FileContent as FileContent
    from mx_artifacts.kinds.base import Fixup as Fixup
    from mx_artifacts.kinds.base import FixupReport as FixupReport
    from mx_artifacts.kinds.base import KeyFactors as KeyFactors
    from mx_artifacts.kinds.base import RankSet as RankSet
    from mx_artifacts.kinds.base import RootRule as RootRule
    from mx_artifacts.kinds.entry_checks import binary_fault as binary_fault
    from mx_artifacts.kinds.entry_checks import empty_fault as empty_fault
    from mx_artifacts.kinds.entry_checks import json_fault as json_fault
    from mx_artifacts.kinds.entry_checks import missing_fault as missing_fault
    from mx_artifacts.kinds.entry_checks import name_of as name_of
    from mx_artifacts.kinds.entry_checks import names_in as names_in
    from mx_artifacts.kinds.entry_checks import read_json as read_json
    from mx_artifacts.kinds.root_rules import Candidate as Candidate
    from mx_artifacts.kinds.root_rules import Locate as Locate
    from mx_artifacts.kinds.root_rules import Location as Location
    from mx_artifacts.kinds.root_rules import below_home as below_home
    from mx_artifacts.kinds.root_rules import below_temporary as below_temporary
    from mx_artifacts.kinds.root_rules import below_user_cache as below_user_cache
    from mx_artifacts.kinds.root_rules import below_vllm_cache as below_vllm_cache
    from mx_artifacts.kinds.root_rules import first_of as first_of
    from mx_artifacts.kinds.root_rules import for_engines as for_engines
    from mx_artifacts.kinds.root_rules import from_path_list as from_path_list
    from mx_artifacts.kinds.root_rules import from_variable as from_variable
    from mx_artifacts.kinds.root_rules import home as home
    from mx_artifacts.kinds.root_rules import temporary_directory as temporary_directory
    from mx_artifacts.kinds.root_rules import user_name as user_name
    from mx_artifacts.kinds.tools import COMPILERS as COMPILERS
    from mx_artifacts.kinds.tools import NINJA as NINJA
    from mx_artifacts.kinds.tools import NVCC as NVCC
    from mx_artifacts.kinds.tools import Tool as Tool
    from mx_artifacts.kinds.usage_markers import UsageMarkers as UsageMarkers
    from mx_artifacts.metadata.base import BackendProperties as BackendProperties
    from mx_artifacts.metadata.base import BallotStore as BallotStore
    from mx_artifacts.metadata.base import Connection as Connection
    from mx_artifacts.metadata.base import MetadataBackend as MetadataBackend
    from mx_artifacts.metadata.base import RecordStore as RecordStore
    from mx_artifacts.metadata.listing import matching as matching
    from mx_artifacts.metadata.listing import ordered as ordered
    from mx_artifacts.metadata.records import attributes_from_json as attributes_from_json
    from mx_artifacts.metadata.records import attributes_to_json as attributes_to_json
    from mx_artifacts.metadata.records import record_from_json as record_from_json
    from mx_artifacts.metadata.records import record_to_json as record_to_json
    from mx_artifacts.metadata.summary import SummaryRow as SummaryRow
    from mx_artifacts.metadata.summary import summary_of as summary_of
    from mx_artifacts.node.environment import Environment as Environment
    from mx_artifacts.node.installed import CannotProbe as CannotProbe
    from mx_artifacts.node.installed import ComponentAbsent as ComponentAbsent
    from mx_artifacts.node.installed import distribution_version as distribution_version
    from mx_artifacts.node.installed import package_directory as package_directory
    from mx_artifacts.node.installed import run_for_json as run_for_json
    from mx_artifacts.node.installed import run_program as run_program
    from mx_artifacts.probes.base import ABSENT as ABSENT
    from mx_artifacts.probes.base import SAME_IMAGE as SAME_IMAGE
    from mx_artifacts.probes.base import SAME_PLACE as SAME_PLACE
    from mx_artifacts.probes.base import SAME_VARIABLES as SAME_VARIABLES
    from mx_artifacts.probes.base import Fact as Fact
    from mx_artifacts.probes.base import IdentityValue as IdentityValue
    from mx_artifacts.probes.base import Probe as Probe
    from mx_artifacts.probes.base import ProbeContext as ProbeContext
    from mx_artifacts.probes.host import CPU_VALUES as CPU_VALUES
    from mx_artifacts.probes.packages import package_path as package_path
    from mx_artifacts.probes.packages import package_version as package_version
    from mx_artifacts.probes.packages import path_probe as path_probe
    from mx_artifacts.probes.packages import version_probe as version_probe
    from mx_artifacts.probes.programs import NINJA_VALUES as NINJA_VALUES
    from mx_artifacts.probes.programs import find_program as find_program
    from mx_artifacts.probes.variables import DEVICE_ARCH as DEVICE_ARCH
    from mx_artifacts.probes.variables import LISTED_ARCH as LISTED_ARCH
    from mx_artifacts.probes.variables import architectures as architectures
    from mx_artifacts.probes.variables import variables as variables
    from mx_artifacts.transport.base import DeviceMemory as DeviceMemory
    from mx_artifacts.transport.base import MemoryKind as MemoryKind
    from mx_artifacts.transport.base import Peer as Peer
    from mx_artifacts.transport.base import PendingRead as PendingRead
    from mx_artifacts.transport.base import Region as Region
    from mx_artifacts.transport.base import RemoteRange as RemoteRange
    from mx_artifacts.transport.base import Transport as Transport
    from mx_artifacts.transport.base import TransportProperties as TransportProperties

_EXPORTS = {
    "ABSENT": "probes.base",
    "AnyBackendFramework": "core.identity",
    "AnySourceType": "core.identity",
    "ArtifactSummary": "core.sources",
    "BackendFramework": "core.identity",
    "BackendProperties": "metadata.base",
    "BallotStore": "metadata.base",
    "COMPILERS": "kinds.tools",
    "CPU_VALUES": "probes.host",
    "CacheKind": "kinds.base",
    "Candidate": "kinds.root_rules",
    "CannotProbe": "node.installed",
    "ComponentAbsent": "node.installed",
    "Connection": "metadata.base",
    "DEVICE_ARCH": "probes.variables",
    "DeviceMemory": "transport.base",
    "EntryFile": "bundle.entry",
    "EntryVerdict": "kinds.base",
    "EntryView": "bundle.entry",
    "Environment": "node.environment",
    "ExistingEntryRule": "kinds.base",
    "Fact": "probes.base",
    "FileContent": "kinds.base",
    "Fixup": "kinds.base",
    "FixupReport": "kinds.base",
    "IdentityValue": "probes.base",
    "KeyFactors": "kinds.base",
    "LISTED_ARCH": "probes.variables",
    "Locate": "kinds.root_rules",
    "Location": "kinds.root_rules",
    "MemoryKind": "transport.base",
    "MetadataBackend": "metadata.base",
    "NEVER_PACKED": "kinds.base",
    "NINJA": "kinds.tools",
    "NINJA_VALUES": "probes.programs",
    "NVCC": "kinds.tools",
    "PackRules": "bundle.rules",
    "Peer": "transport.base",
    "PendingRead": "transport.base",
    "PodIdentity": "core.sources",
    "Probe": "probes.base",
    "ProbeContext": "probes.base",
    "RankSet": "kinds.base",
    "ReadContent": "bundle.entry",
    "RecordStore": "metadata.base",
    "Region": "transport.base",
    "RemoteRange": "transport.base",
    "RootRule": "kinds.base",
    "SAME_IMAGE": "probes.base",
    "SAME_PLACE": "probes.base",
    "SAME_VARIABLES": "probes.base",
    "SourceIdentity": "core.identity",
    "SourceQuery": "core.sources",
    "SourceRef": "core.sources",
    "SourceStatus": "core.sources",
    "SourceType": "core.identity",
    "StoredWorker": "core.sources",
    "SummaryRow": "metadata.summary",
    "TensorDescriptor": "core.sources",
    "Tool": "kinds.tools",
    "Transport": "transport.base",
    "TransportProperties": "transport.base",
    "UsageMarkers": "kinds.usage_markers",
    "WorkerRecord": "core.sources",
    "architectures": "probes.variables",
    "attributes_from_json": "metadata.records",
    "attributes_to_json": "metadata.records",
    "below_home": "kinds.root_rules",
    "below_temporary": "kinds.root_rules",
    "below_user_cache": "kinds.root_rules",
    "below_vllm_cache": "kinds.root_rules",
    "binary_fault": "kinds.entry_checks",
    "distribution_version": "node.installed",
    "each_file": "bundle.rules",
    "empty_fault": "kinds.entry_checks",
    "find_program": "probes.programs",
    "first_of": "kinds.root_rules",
    "first_parts": "bundle.rules",
    "for_engines": "kinds.root_rules",
    "from_path_list": "kinds.root_rules",
    "from_variable": "kinds.root_rules",
    "home": "kinds.root_rules",
    "json_fault": "kinds.entry_checks",
    "matching": "metadata.listing",
    "missing_fault": "kinds.entry_checks",
    "name_of": "kinds.entry_checks",
    "names_in": "kinds.entry_checks",
    "no_fault": "bundle.rules",
    "ordered": "metadata.listing",
    "package_directory": "node.installed",
    "package_path": "probes.packages",
    "package_version": "probes.packages",
    "path_probe": "probes.packages",
    "read_json": "kinds.entry_checks",
    "read_regular_file": "filesystem.regular_file",
    "record_from_json": "metadata.records",
    "record_to_json": "metadata.records",
    "run_for_json": "node.installed",
    "run_program": "node.installed",
    "shown": "core.foreign_text",
    "summary_of": "metadata.summary",
    "supersedes": "core.sources",
    "temporary_directory": "kinds.root_rules",
    "user_name": "kinds.root_rules",
    "variables": "probes.variables",
    "version_probe": "probes.packages",
}

__all__ = [*_EXPORTS]  # noqa: PLE0604 - checked in a test
__getattr__, __dir__ = lazy_exports(__name__, _EXPORTS)
