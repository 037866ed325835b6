"""Random, valid PTX: every program ends, races with nobody and reads nothing that PTX leaves open.

A program works on a fixed set of registers that start as the thread's inputs, and stores all of them at its
end. Statements overwrite them: single instructions from the menu, branches, loops, warp instructions under
masks whose lanes are there, exchanges through shared memory between barriers, atomics that commute, local
memory, calls.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from tests.model.reference.launch import Launch
from tests.model.reference.menu import CLASSES, SIMPLE
from tests.model.reference.thread import Dim3
from tests.model.reference.words import double_word, float_word

STORED = ("r", "f", "d", "l", "h")
SHAPES: tuple[tuple[Dim3, Dim3], ...] = (
    ((1, 1, 1), (32, 1, 1)),
    ((2, 1, 1), (64, 1, 1)),
    ((1, 1, 1), (1, 1, 1)),
    ((1, 2, 1), (33, 1, 1)),
    ((1, 1, 2), (7, 5, 1)),
    ((1, 1, 1), (5, 3, 3)),
    ((3, 1, 1), (8, 4, 1)),
    ((1, 1, 1), (96, 1, 1)),
)
# Where the atomics of statement k meet: four words each, of this many statements.
ATOMIC_STATEMENTS = 6


@dataclass(frozen=True)
class Program:
    """A kernel with the buffers it needs, by name and size in bytes, in the order of its parameters."""

    ptx: str
    launch: Launch
    inputs: dict[str, int]
    outputs: dict[str, int]


def program(rng: Random, statements: int = 12) -> Program:
    return Writer(rng).write(statements)


class Writer:
    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.lines: list[str] = []
        self.labels = 0
        self.temps = 0
        self.atomics = 0
        self.grid, self.block = rng.choice(SHAPES)
        self.threads = self.block[0] * self.block[1] * self.block[2]
        self.all = self.threads * self.grid[0] * self.grid[1] * self.grid[2]

    # --- Words ---

    def emit(self, line: str) -> None:
        self.lines.append("    " + line)

    def pick(self, prefix: str) -> str:
        return f"%{prefix}{self.rng.randrange(CLASSES[prefix][0])}"

    def temp(self, prefix: str) -> str:
        """A register of its own: `%tr7`."""
        self.temps += 1
        return f"%t{prefix}{self.temps}"

    def label(self) -> str:
        self.labels += 1
        return f"$L{self.labels}"

    def source(self, prefix: str) -> str:
        """A register, now and then an immediate."""
        if prefix == "r" and self.rng.random() < 0.15:
            return str(
                self.rng.choice((0, 1, -1, 31, 32, 255, 65535, -2147483648, self.rng.randrange(1 << 31)))
            )
        if prefix == "f" and self.rng.random() < 0.15:
            return f"0f{float_word(self.rng):08X}"
        if prefix == "d" and self.rng.random() < 0.15:
            return f"0d{double_word(self.rng):016X}"
        return self.pick(prefix)

    # --- The kernel ---

    def write(self, statements: int) -> Program:
        self.prologue()
        for _ in range(statements):
            self.statement(depth=0)
        self.epilogue()
        inputs = {f"in_{c}": CLASSES[c][0] * CLASSES[c][2] * self.all for c in STORED}
        outputs = {f"out_{c}": CLASSES[c][0] * CLASSES[c][2] * self.all for c in STORED}
        outputs |= {"out_p": 4 * self.all, "meet": 16 * ATOMIC_STATEMENTS, "own": 8 * self.all}
        names = (*inputs, *outputs)
        params = ",\n".join(f"    .param .u64 p_{name}" for name in names)
        registers = [f"    .reg .{type_} %{c}<{count}>;" for c, (count, type_, _) in CLASSES.items()]
        registers += [f"    .reg .{type_} %t{c}<{self.temps + 1}>;" for c, (_, type_, _) in CLASSES.items()]
        registers += ["    .reg .b64 %a<64>;", "    .reg .b32 %where, %who, %lane, %there, %me;"]
        text = "\n".join(
            [
                ".version 8.0",
                ".target sm_90",
                ".address_size 64",
                ".const .align 8 .b32 ctable[8] = {1, 2, 0x7fc00001, 4, 0x80000000, 6, 0x00000003, 8};",
                ".global .align 4 .f32 gtable[4] = {0f3F800000, 0f00000001, 0fFF800000, 0f7F7FFFFF};",
                FUNCTION,
                f".visible .entry kernel(\n{params}\n)",
                "{",
                *registers,
                f"    .shared .align 16 .b8 tile[{16 * self.threads}];",
                "    .local .align 16 .b8 own_array[64];",
                *self.lines,
                "    ret;",
                "}",
                "",
            ]
        )
        return Program(text, Launch("kernel", self.grid, self.block, names), inputs, outputs)

    def prologue(self) -> None:
        x, y, _ = self.block
        for line in (
            "mov.u32 %tr0, %tid.z;",
            "mov.u32 %who, %tid.y;",
            f"mad.lo.s32 %who, %tr0, {y}, %who;",
            "mov.u32 %tr0, %tid.x;",
            f"mad.lo.s32 %who, %who, {x}, %tr0;",
            "mov.u32 %tr0, %ctaid.z;",
            "mov.u32 %where, %ctaid.y;",
            f"mad.lo.s32 %where, %tr0, {self.grid[1]}, %where;",
            "mov.u32 %tr0, %ctaid.x;",
            f"mad.lo.s32 %where, %where, {self.grid[0]}, %tr0;",
            f"mad.lo.s32 %where, %where, {self.threads}, %who;",
            "mov.u32 %lane, %laneid;",
            "mov.u32 %me, %lanemask_eq;",
            # The lanes of this warp that exist.
            "mov.b32 %there, -1;",
            f"setp.ge.u32 %tp0, %who, {self.threads // 32 * 32};",
            f"@%tp0 mov.b32 %there, {(1 << self.threads % 32) - 1};",
        ):
            self.emit(line)
        names = (*(f"in_{c}" for c in STORED), *(f"out_{c}" for c in STORED), "out_p", "meet", "own")
        for at, name in enumerate(names):
            self.emit(f"ld.param.u64 %a{at}, [p_{name}];")
            if self.rng.random() < 0.7:
                self.emit(f"cvta.to.global.u64 %a{at}, %a{at};")
        for i, c in enumerate(STORED):
            count, type_, size = CLASSES[c]
            for k in range(count):
                self.address(f"%a{i}", f"%a{20 + i}", size, k)
                self.emit(f"ld.global.{type_} %{c}{k}, [%a{20 + i}+{size * self.all * k}];")
        for k in range(CLASSES["p"][0]):
            self.emit(f"setp.lt.s32 %p{k}, %r{k}, %r{k + 1};")
        self.emit("mov.b32 %tr0, 0;")
        for k in range(4):
            self.emit(f"st.local.v4.b32 [own_array+{16 * k}], {{%tr0, %where, %lane, %tr0}};")

    def address(self, base: str, target: str, size: int, k: int) -> None:
        if k == 0:
            self.emit(f"mad.wide.u32 {target}, %where, {size}, {base};")

    def epilogue(self) -> None:
        # PTX leaves the payload of a double NaN open: one stands for all.
        for k in range(CLASSES["d"][0]):
            self.one_nan(f"%d{k}", "d")
        for i, c in enumerate(STORED, len(STORED)):
            count, type_, size = CLASSES[c]
            for k in range(count):
                self.address(f"%a{i}", f"%a{20 + i}", size, k)
                self.emit(f"st.global.{type_} [%a{20 + i}+{size * self.all * k}], %{c}{k};")
        self.emit("selp.b32 %tr0, 1, 0, %p0;")
        self.emit("@%p1 add.s32 %tr0, %tr0, 2;")
        self.emit("@!%p2 add.s32 %tr0, %tr0, 4;")
        self.emit("mad.wide.u32 %a30, %where, 4, %a10;")
        self.emit("st.global.b32 [%a30], %tr0;")

    def one_nan(self, register: str, c: str) -> None:
        """Give a NaN whose payload is open its one form; a float's is what arithmetic gives it."""
        type_, nan = {"d": ("f64", "0d7FF8000000000000"), "f": ("f32", "0f7FFFFFFF")}[c]
        p = self.temp("p")
        self.emit(f"setp.nan.{type_} {p}, {register}, {register};")
        self.emit(f"selp.{type_} {register}, {nan}, {register}, {p};")

    # --- Statements ---

    def statement(self, depth: int) -> None:
        """One statement. At depth 0 all threads of the block are together; deeper any of them may be away."""
        choices: list[tuple[int, Callable[[int], None]]] = [
            (24, self.simple),
            (2, self.branch),
            (2, self.loop),
            (1, self.switch),
            (2, self.local),
            (2, self.memory),
            (2, self.atomic),
            (2, self.own_atomic),
            (1, self.call),
        ]
        if depth == 0:
            choices += [(3, self.shuffle), (3, self.vote), (3, self.exchange), (1, self.block_vote)]
        weights = [w for w, _ in choices]
        self.rng.choices([c for _, c in choices], weights)[0](depth)

    def simple(self, depth: int) -> None:
        """A few instructions of the table, some of them predicated."""
        for _ in range(self.rng.randint(1, 4)):
            self.rng.choice(SIMPLE)(self)

    def guard(self) -> str:
        if self.rng.random() < 0.8:
            return ""
        return f"@{self.rng.choice(('', '!'))}{self.pick('p')} "

    def branch(self, depth: int) -> None:
        other, end = self.label(), self.label()
        self.emit(f"@{self.rng.choice(('', '!'))}{self.pick('p')} bra {other};")
        self.body(depth + 1)
        if self.rng.random() < 0.5:
            self.emit(f"bra.uni {end};")
            self.emit_label(other)
            self.body(depth + 1)
            self.emit_label(end)
        else:
            self.emit_label(other)

    def loop(self, depth: int) -> None:
        """Zero to three rounds, another number for every thread."""
        top, end = self.label(), self.label()
        rounds, p = self.temp("r"), self.temp("p")
        self.emit(f"and.b32 {rounds}, {self.pick('r')}, 3;")
        self.emit_label(top)
        self.emit(f"setp.eq.s32 {p}, {rounds}, 0;")
        self.emit(f"@{p} bra {end};")
        self.body(depth + 1)
        self.emit(f"sub.s32 {rounds}, {rounds}, 1;")
        if self.rng.random() < 0.3:
            self.emit(f"@{self.pick('p')} bra {end};")
        self.emit(f"bra {top};")
        self.emit_label(end)

    def switch(self, depth: int) -> None:
        """A branch by table."""
        index, table, end = self.temp("r"), self.label(), self.label()
        arms = [self.label() for _ in range(self.rng.randint(2, 3))]
        self.emit(f"rem.u32 {index}, {self.pick('r')}, {len(arms)};")
        self.lines.append(f"{table}: .branchtargets {', '.join(arms)};")
        self.emit(f"brx.idx {index}, {table};")
        for arm in arms:
            self.emit_label(arm)
            self.body(depth + 1)
            if self.rng.random() < 0.7:
                self.emit(f"bra.uni {end};")
        self.emit_label(end)

    def emit_label(self, name: str) -> None:
        self.lines.append(f"{name}:")

    def body(self, depth: int) -> None:
        for _ in range(self.rng.randint(1, 3)):
            if depth < 3:
                self.statement(depth)
            else:
                self.simple(depth)

    def local(self, depth: int) -> None:
        """A word of the thread's own array, at an index known at run time, directly or by generic address."""
        index, a = self.temp("r"), self.temp("l")
        self.emit(f"and.b32 {index}, {self.pick('r')}, 15;")
        self.emit(f"mov.u64 {a}, own_array;")
        space = self.rng.choice((".local", ""))
        if not space:
            self.emit(f"cvta.local.u64 {a}, {a};")
        self.emit(f"mad.wide.u32 {a}, {index}, 4, {a};")
        if self.rng.random() < 0.5:
            self.emit(f"{self.guard()}st{space}.b32 [{a}], {self.source('r')};")
        else:
            self.emit(f"{self.guard()}ld{space}.b32 {self.pick('r')}, [{a}];")

    def memory(self, depth: int) -> None:
        """Tables and inputs: narrow, wide and vector loads."""
        index, a = self.temp("r"), self.temp("l")
        kind = self.rng.randrange(5)
        if kind == 0:
            self.emit(f"and.b32 {index}, {self.pick('r')}, 7;")
            self.emit(f"mov.u64 {a}, ctable;")
            self.emit(f"mad.wide.u32 {a}, {index}, 4, {a};")
            self.emit(f"ld.const.b32 {self.pick('r')}, [{a}];")
        elif kind == 1:
            self.emit(f"and.b32 {index}, {self.pick('r')}, 3;")
            self.emit(f"mov.u64 {a}, gtable;")
            self.emit(f"mad.wide.u32 {a}, {index}, 4, {a};")
            self.emit(f"ld.global.f32 {self.pick('f')}, [{a}];")
        elif kind == 2:
            self.emit(f"rem.u32 {index}, {self.pick('r')}, {self.all};")
            self.emit(f"mad.wide.u32 {a}, {index}, 4, %a0;")
            width = self.rng.choice(("u8", "s8", "u16", "s16"))
            self.emit(f"{self.guard()}ld.global.{width} {self.pick('r')}, [{a}+{2 * self.rng.randrange(2)}];")
        elif kind == 3:
            # Six words a thread: the first four of a thread lie on 16 bytes if its index is even.
            self.emit(f"rem.u32 {index}, {self.pick('r')}, {self.all};")
            self.emit(f"and.b32 {index}, {index}, -2;")
            self.emit(f"mad.wide.u32 {a}, {index}, 8, %a0;")
            a_, b_, c_, d_ = (self.pick("r") for _ in range(4))
            distinct = len({a_, b_, c_, d_}) == 4
            if distinct and self.all > 1:
                self.emit(f"ld.global.v4.b32 {{{a_}, {b_}, {c_}, {d_}}}, [{a}];")
            elif a_ != b_:
                self.emit(f"ld.global.nc.v2.b32 {{{a_}, {b_}}}, [{a}];")
        else:
            self.emit(f"rem.u32 {index}, {self.pick('r')}, {self.all};")
            self.emit(f"mad.wide.u32 {a}, {index}, 8, %a2;")
            self.emit(f"{self.guard()}ld.f64 {self.pick('d')}, [{a}];")

    def atomic(self, depth: int) -> None:
        """Many threads, few words; what is left does not depend on the order."""
        if self.atomics == ATOMIC_STATEMENTS:
            return self.simple(depth)
        index, a = self.temp("r"), self.temp("l")
        self.emit(f"and.b32 {index}, {self.pick('r')}, {self.rng.choice((0, 1, 3))};")
        self.emit(f"mad.wide.u32 {a}, {index}, 4, %a11;")
        op = self.rng.choice(
            ("add.u32", "add.s32", "min.s32", "max.u32", "min.u32", "max.s32", "and.b32", "or.b32", "xor.b32",
             "inc.u32", "dec.u32")
        )  # fmt: skip
        operand = "9" if op[:3] in ("inc", "dec") else self.source("r")
        place = f"[{a}+{16 * self.atomics}]"
        self.atomics += 1
        space = self.rng.choice((".global", ""))
        scope = self.rng.choice(("", ".relaxed.gpu", ".gpu"))
        if self.rng.random() < 0.5:
            self.emit(f"{self.guard()}red{scope}{space}.{op} {place}, {operand};")
        else:
            self.emit(f"{self.guard()}atom{scope}{space}.{op} {self.temp('r')}, {place}, {operand};")
        return None

    def own_atomic(self, depth: int) -> None:
        """A word of the thread's own in global or shared memory, so that what comes back is known."""
        a, shared = self.temp("l"), self.rng.random() < 0.5
        if shared:
            base = self.temp("l")
            self.emit(f"mov.u64 {base}, tile;")
            self.emit(f"mad.wide.u32 {a}, %who, 16, {base};")
            space = "shared"
        else:
            self.emit(f"mad.wide.u32 {a}, %where, 8, %a12;")
            space = "global"
        kind = self.rng.randrange(5)
        guard = self.guard()
        if kind == 0:
            self.emit(f"st.{space}.f32 [{a}], {self.pick('f')};")
            self.emit(f"{guard}atom.{space}.add.f32 {self.pick('f')}, [{a}], {self.source('f')};")
            self.emit(f"ld.{space}.f32 {self.pick('f')}, [{a}];")
        elif kind == 1:
            self.emit(f"st.{space}.f64 [{a}], {self.pick('d')};")
            self.emit(f"{guard}atom.{space}.add.f64 {self.pick('d')}, [{a}], {self.source('d')};")
            after = self.pick("d")
            self.emit(f"ld.{space}.f64 {after}, [{a}];")
            self.one_nan(after, "d")
            self.emit(f"st.{space}.f64 [{a}], {after};")
        elif kind == 2:
            wide = self.rng.choice(("add.u64", "min.s64", "max.u64", "xor.b64", "exch.b64", "and.b64"))
            self.emit(f"st.{space}.b64 [{a}], {self.pick('l')};")
            self.emit(f"{guard}atom.{space}.{wide} {self.pick('l')}, [{a}], {self.pick('l')};")
            self.emit(f"ld.{space}.b64 {self.pick('l')}, [{a}];")
        elif kind == 3:
            self.emit(f"st.{space}.b32 [{a}], {self.pick('r')};")
            self.emit(
                f"{guard}atom.{space}.cas.b32 {self.pick('r')}, [{a}], {self.pick('r')}, {self.pick('r')};"
            )
            self.emit(f"ld.{space}.b32 {self.pick('r')}, [{a}];")
        else:
            op = self.rng.choice(("inc.u32", "dec.u32", "exch.b32", "min.s32", "add.u32"))
            self.emit(f"st.{space}.b32 [{a}], {self.pick('r')};")
            self.emit(f"{guard}atom.{space}.{op} {self.pick('r')}, [{a}], {self.pick('r')};")
            self.emit(f"ld.{space}.b32 {self.pick('r')}, [{a}];")

    def call(self, depth: int) -> None:
        a, b = self.pick("f"), self.pick("r")
        self.emit("{")
        self.emit(".param .b32 pa; .param .b32 pb; .param .align 8 .b8 pr[16];")
        self.emit(f"st.param.f32 [pa], {a};")
        self.emit(f"st.param.b32 [pb], {b};")
        self.emit("call (pr), helper, (pa, pb);")
        self.emit(f"ld.param.f32 {self.pick('f')}, [pr];")
        self.emit(f"ld.param.b32 {self.pick('r')}, [pr+4];")
        self.emit(f"ld.param.b64 {self.pick('l')}, [pr+8];")
        self.emit("}")

    # --- Together ---

    def shuffle(self, depth: int) -> None:
        """Of whole warps any shuffle; where lanes are missing, only from lanes that are there."""
        target, p = self.pick("r"), self.pick("p")
        if self.threads % 32:
            self.emit(f"shfl.sync.up.b32 {target}|{p}, {self.source('r')}, {self.pick('r')}, 0, %there;")
            return
        mode = self.rng.choice(("up", "down", "bfly", "idx"))
        b = self.rng.choice((str(self.rng.randrange(32)), self.pick("r")))
        c = self.rng.choice((str(self.rng.randrange(1 << 13) & 0x1F1F), "31", "0x1c03", self.pick("r")))
        first = self.rng.choice((target, f"{target}|{p}"))
        self.emit(f"shfl.sync.{mode}.b32 {first}, {self.source('r')}, {b}, {c}, -1;")

    def vote(self, depth: int) -> None:
        """Votes, matches and reductions by the lanes of a mask, the others passing by."""
        lanes, p, end = self.temp("r"), self.temp("p"), self.label()
        chosen = self.rng.choice(
            (0xFFFFFFFF, 0x55555555, 0x0000FFFF, 0x80000001, self.rng.randrange(1 << 32))
        )
        self.emit(f"and.b32 {lanes}, %there, {chosen:#x};")
        self.emit(f"and.b32 %tr0, {lanes}, %me;")
        self.emit(f"setp.eq.s32 {p}, %tr0, 0;")
        self.emit(f"@{p} bra {end};")
        for _ in range(self.rng.randint(1, 2)):
            kind = self.rng.randrange(4)
            r, q = self.pick("r"), self.pick("p")
            if kind == 0:
                word = self.rng.choice(("all", "any", "uni"))
                self.emit(
                    f"vote.sync.{word}.pred {q}, {self.rng.choice(('', '!'))}{self.pick('p')}, {lanes};"
                )
                self.emit(f"vote.sync.ballot.b32 {r}, {self.pick('p')}, {lanes};")
            elif kind == 1:
                word = self.rng.choice(("add", "min", "max"))
                type_ = self.rng.choice(("u32", "s32"))
                self.emit(f"redux.sync.{word}.{type_} {r}, {self.pick('r')}, {lanes};")
            elif kind == 2:
                self.emit(
                    f"redux.sync.{self.rng.choice(('and', 'or', 'xor'))}.b32 {r}, {self.pick('r')}, {lanes};"
                )
            else:
                narrow = self.temp("r")
                self.emit(f"and.b32 {narrow}, {self.pick('r')}, {self.rng.choice((0, 1, 3))};")
                if self.rng.random() < 0.5:
                    self.emit(f"match.any.sync.b32 {r}, {narrow}, {lanes};")
                else:
                    self.emit(f"match.all.sync.b32 {r}|{q}, {narrow}, {lanes};")
        if self.rng.random() < 0.5:
            # From the lowest lane of the mask.
            self.emit(f"brev.b32 %tr0, {lanes};")
            self.emit("clz.b32 %tr0, %tr0;")
            self.emit(f"shfl.sync.idx.b32 {self.pick('r')}, {self.pick('r')}, %tr0, 31, {lanes};")
        self.emit_label(end)
        self.emit("bar.warp.sync %there;")

    def exchange(self, depth: int) -> None:
        """Write one's own place in shared memory, meet, read another's, meet again."""
        base, a, index = self.temp("l"), self.temp("l"), self.temp("r")
        c = self.rng.choice(("r", "f", "d", "h"))
        type_ = CLASSES[c][1]
        self.emit(f"mov.u64 {base}, tile;")
        space = self.rng.choice((".shared", ""))
        if not space:
            self.emit(f"cvta.shared.u64 {base}, {base};")
        self.emit(f"mad.wide.u32 {a}, %who, 16, {base};")
        self.emit(f"st{space}.{type_} [{a}], {self.pick(c)};")
        self.emit(self.barrier())
        self.emit(f"add.u32 {index}, %who, {self.rng.randrange(self.threads)};")
        self.emit(f"rem.u32 {index}, {index}, {self.threads};")
        self.emit(f"mad.wide.u32 {a}, {index}, 16, {base};")
        self.emit(f"ld{space}.{type_} {self.pick(c)}, [{a}];")
        self.emit(self.barrier())

    def barrier(self) -> str:
        number = self.rng.randrange(3)
        whole = f", {self.threads}" if self.threads % 32 == 0 and self.rng.random() < 0.3 else ""
        return self.rng.choice((f"bar.sync {number}{whole};", f"barrier.sync {number}{whole};"))

    def block_vote(self, depth: int) -> None:
        if self.rng.random() < 0.5:
            self.emit(f"bar.red.popc.u32 {self.pick('r')}, 0, {self.pick('p')};")
        else:
            word = self.rng.choice(("and", "or"))
            self.emit(
                f"bar.red.{word}.pred {self.pick('p')}, 1, {self.rng.choice(('', '!'))}{self.pick('p')};"
            )


FUNCTION = """.func (.param .align 8 .b8 result[16]) helper(.param .b32 pa, .param .b32 pb)
{
    .reg .f32 %f<4>;
    .reg .b32 %r<4>;
    .reg .b64 %l<3>;
    .reg .pred %p<2>;
    .local .align 8 .b8 slot[8];
    ld.param.f32 %f0, [pa];
    ld.param.b32 %r0, [pb];
    st.local.b32 [slot], %r0;
    and.b32 %r1, %r0, 7;
    setp.gt.u32 %p0, %r1, 5;
    @%p0 bra $early;
    fma.rn.f32 %f1, %f0, %f0, 0f3E800000;
    add.rp.f32 %f1, %f1, %f0;
    mul.wide.u32 %l0, %r0, %r1;
    st.param.f32 [result], %f1;
    st.param.b32 [result+4], %r1;
    st.param.b64 [result+8], %l0;
    ret;
$early:
    ld.local.b32 %r2, [slot];
    xor.b32 %r2, %r2, 0x5a5a5a5a;
    cvt.s64.s32 %l1, %r2;
    st.param.f32 [result], 0fBF800000;
    st.param.b32 [result+4], %r2;
    st.param.b64 [result+8], %l1;
    ret;
}"""
