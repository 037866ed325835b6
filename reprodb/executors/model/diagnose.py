"""Recorded error codes as sentences: kernel, stage, block, thread, PTX line, address and buffer."""

from __future__ import annotations

from reprodb.domain import Stage
from reprodb.errors import ExecutionError
from reprodb.executors.model import layout
from reprodb.executors.model.device import Launch, Memory, Region
from reprodb.executors.model.emit import Site
from reprodb.executors.model.lower import Lowered


def explain(
    kernel: str, stage: Stage, lowered: Lowered, launch: Launch, memory: Memory, block: int
) -> ExecutionError:
    """The error that the launch record holds, for block number `block` of the grid."""
    code = launch.get(layout.L_ERROR, 4)
    number = launch.get(layout.L_ERROR_SITE, 4)
    lane = launch.get(layout.L_ERROR_LANE, 4)
    address = launch.get(layout.L_ERROR_ADDRESS, 8)
    site = lowered.sites[number] if number < len(lowered.sites) else None
    grid_x, grid_y = stage.grid[:2]
    where = f"{kernel}: stage {stage.entry}, block ({block % grid_x}, {block // grid_x % grid_y}, "
    where += f"{block // (grid_x * grid_y)})"
    thread = launch.get(layout.L_ERROR_WARP, 4) * 32 + lane
    x, y = stage.block[:2]
    by_thread = f"{where}, thread ({thread % x}, {thread // x % y}, {thread // (x * y)})"
    at = f"{site.opcode} at {site.where}" if site else ""
    match code:
        case layout.E_ACCESS if site is not None:
            problem = f"{by_thread}: {at} {_access(site, address, lowered, launch, memory)}"
            return ExecutionError(problem, remedy=_access_remedy(site, address, memory))
        case layout.E_TRAP:
            return ExecutionError(
                f"{by_thread}: {at}", remedy="the kernel itself gives up here; see its source"
            )
        case layout.E_DIVISION:
            return ExecutionError(
                f"{by_thread}: {at} divides by zero, which PTX leaves undefined", remedy="guard the division"
            )
        case layout.E_BRANCH_TABLE:
            return ExecutionError(f"{by_thread}: {at} has an index beyond its table")
        case layout.E_WARP_DEADLOCK:
            line = lowered.block_lines[address] if address < len(lowered.block_lines) else 0
            return ExecutionError(
                f"{by_thread}: PTX line {line} waits for lanes of its warp that never come",
                remedy="name in the mask only lanes that reach the instruction",
            )
        case layout.E_BLOCK_DEADLOCK:
            return ExecutionError(
                f"{where}: every warp waits at a barrier that cannot fill",
                remedy="let all threads of the block reach the same barriers",
            )
        case layout.E_BARRIER:
            return ExecutionError(
                f"{where}: {at or 'a barrier'} is misused",
                allowed="barriers 0 to 15, counts that are multiples of 32, one count for all that meet, "
                "and one barrier at a time for the lanes of a warp",
            )
        case layout.E_STEPS:
            return ExecutionError(
                f"{where}: no end after {_budget(launch)} backward branches",
                remedy="a loop that waits for something that never happens? else run it on a GPU",
            )
    return ExecutionError(f"{where}: error {code}")


def _budget(launch: Launch) -> str:
    return f"{launch.steps:,}"


def _access(site: Site, address: int, lowered: Lowered, launch: Launch, memory: Memory) -> str:
    """What is wrong with an access, in words."""
    verb = "writes" if site.writes else "reads"
    what = f"{verb} {site.nbytes} bytes at {address:#x}"
    space, offset = site.space, address
    if space == "generic":
        window = address >> 32
        if window == layout.SHARED_WINDOW >> 32:
            space, offset = "shared", address & 0xFFFFFFFF
        elif window == layout.LOCAL_WINDOW >> 32:
            space, offset = "local", address & 0xFFFFFFFF
    if address % site.nbytes:
        return f"{what}, which is no multiple of {site.nbytes}"
    if space == "shared":
        return f"{what} of shared memory, which has {launch.shared_bytes} bytes"
    if space in ("local", "param"):
        return f"{what} of .{space} memory, beyond its end (offset {offset})"
    for region in memory.regions:
        if region.address <= address and address + site.nbytes <= region.end:
            if _outside_rows(region, address, site.nbytes, memory):
                first, after = memory.bounds[region.name]
                own, at = f"this launch's rows of {region.name}", address - region.address
                if at < first:
                    return f"{what}, {first - at} bytes before {own}"
                return f"{what}, {at - first} bytes into {own}, which have {after - first} bytes"
            return f"{what} into {region.name}, which kernels may only read"
    near = min(memory.regions, key=lambda r: _distance(r, address), default=None)
    if near is None or _distance(near, address) > layout.SPACING // 4:
        return f"{what}, which is in no buffer"
    if address < near.address:
        return f"{what}, {near.address - address} bytes before {near.name}"
    return f"{what}, {address - near.address} bytes into {near.name}, which has {len(near.data)} bytes"


def _outside_rows(region: Region, address: int, nbytes: int, memory: Memory) -> bool:
    """Whether an access meets rows of another launch."""
    if region.name not in memory.bounds or not region.address <= address < region.end:
        return False
    first, after = memory.bounds[region.name]
    return not first <= address - region.address <= after - nbytes


def _distance(region: Region, address: int) -> int:
    """Bytes from an address to the nearest one of a region."""
    return max(region.address - address, address - region.end, 0)


def _access_remedy(site: Site, address: int, memory: Memory) -> str:
    if any(_outside_rows(r, address, site.nbytes, memory) for r in memory.regions):
        return "a launch has BATCH rows: let no thread go beyond them"
    inside = any(r.address <= address < r.end and not r.writable for r in memory.regions)
    if site.writes and inside:
        return 'declare a buffer with init = "copy:NAME" for what a kernel changes in place'
    return "the kernel, or a size in its manifest, is wrong"
