"""The PTX parser: what compilers write, read into values with lines, scopes and initial bytes."""

import pytest

from reprodb.errors import UnsupportedError
from reprodb.executors.model.ptx import (
    Args,
    Float,
    Guard,
    Instruction,
    Int,
    Label,
    Mem,
    Not,
    Pair,
    Reg,
    Sink,
    Source,
    Sym,
    Vec,
    parse,
)

HEAD = ".version 8.5\n.target sm_90, debug\n.address_size 64\n"


def body(text: str) -> tuple[Instruction | Label, ...]:
    module = parse(
        f"{HEAD}.visible .entry k() {{ .reg .b32 %r<4>; .reg .f32 %f<4>; .reg .pred %p<3>;\n{text} }}"
    )
    function = module.function("k")
    assert function is not None
    assert function.body is not None
    return function.body


def test_operands_keep_their_kind() -> None:
    statements = body(
        "shfl.sync.down.b32 %r1|%p1, %r2, 16, 31, -1;\n"
        "@!%p1 st.shared.v2.f32 [%r1+-8], {%f1, 0f3F800000};\n"
        "selp.b32 %r1, -7, 0xFFFFFFFF, %p1;\n"
        "and.pred %p1, %p2, !%p1;\n"
        "setp.eq.and.f32 _|%p2, %f1, 0d3FF0000000000000, %p1;\n"
        "call.uni (retval0), helper, (param0, param1);"
    )
    shuffle, store, select, logic, compare, call = statements
    assert shuffle == Instruction(
        "shfl.sync.down.b32",
        (Pair(Reg("%r1"), Reg("%p1")), Reg("%r2"), Int(16), Int(31), Int(-1)),
        line=5,
    )
    assert isinstance(store, Instruction)
    assert store.guard == Guard("%p1", negated=True)
    assert store.operands == (Mem(Reg("%r1"), -8), Vec((Reg("%f1"), Float(0x3F800000, 32))))
    assert isinstance(select, Instruction)
    assert select.operands[1:3] == (Int(-7), Int(0xFFFFFFFF))
    assert isinstance(logic, Instruction)
    assert logic.operands[2] == Not(Reg("%p1"))
    assert isinstance(compare, Instruction)
    assert compare.operands[0] == Pair(Sink(), Reg("%p2"))
    assert compare.operands[2] == Float(0x3FF0000000000000, 64)
    assert isinstance(call, Instruction)
    assert call.operands == (
        Args((Sym("retval0"),)),
        Sym("helper"),
        Args((Sym("param0"), Sym("param1"))),
    )


def test_inner_scopes_get_names_of_their_own() -> None:
    statements = body(
        "{ .reg .b32 t; mov.u32 t, 1; bra OUT; OUT: }\n{ .reg .b32 t; mov.u32 t, 2; bra OUT; OUT: }"
    )
    first, jump, label, second, jump2, label2 = statements
    assert isinstance(first, Instruction)
    assert isinstance(second, Instruction)
    assert first.operands[0] != second.operands[0]
    assert isinstance(jump, Instruction)
    assert isinstance(jump2, Instruction)
    assert isinstance(label, Label)
    assert isinstance(label2, Label)
    assert jump.operands == (Sym(label.name),)
    assert jump2.operands == (Sym(label2.name),)
    assert label.name != label2.name


def test_branch_tables_and_source_lines() -> None:
    module = parse(
        HEAD
        + '.file 1 "/src/deep/k.cu"\n'
        + ".entry k(.param .u64 a, .param .align 8 .b8 s[24])\n.maxntid 256, 1, 1\n{\n.reg .b32 %r<2>;\n"
        + ".loc 1 17 3\nmov.u32 %r1, %tid.x;\n"
        + ".loc 1 18 9, function_name $L__info_string0, inlined_at 1 40 5\n"
        + "ts: .branchtargets $A, $B;\nbrx.idx %r1, ts;\n$A:\n$B:\nret;\n}\n"
        + ".section .debug_str { $L__info_string0: .b8 95, 90 }\n"
    )
    function = module.function("k")
    assert function is not None
    assert function.tables == {"ts": ("$A", "$B")}
    assert [i.source for i in function.instructions] == [
        Source("k.cu", 17), Source("k.cu", 18), Source("k.cu", 18)
    ]  # fmt: skip
    assert [p.nbytes for p in function.params] == [8, 24]
    assert function.directives == (".maxntid 256 , 1 , 1",)
    assert function.instructions[0].where == "PTX line 10 (k.cu:17)"


def test_variables_carry_their_bytes() -> None:
    module = parse(
        HEAD
        + ".const .align 4 .f32 c[3] = {0f3F800000, -2.5, 1};\n"
        + ".global .align 8 .u64 p[2] = {generic(c)+4, 9};\n"
        + ".global .align 2 .b16 open[] = {1, 65535};\n"
        + ".global .b8 grid[2][2] = {{1, 2}, {3}};\n"
        + ".extern .shared .align 16 .b8 smem[];\n"
        + ".extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);\n"
    )
    by_name = {v.name: v for v in module.variables}
    assert by_name["c"].data == bytes.fromhex("0000803f 000020c0 0000803f")
    assert by_name["p"].relocations == ((0, "c", 4, True),)
    assert by_name["p"].data == bytes(8) + (9).to_bytes(8, "little")
    assert by_name["open"].nbytes == 4
    assert by_name["open"].data == b"\x01\x00\xff\xff"
    assert by_name["grid"].nbytes == 4
    assert by_name["smem"].nbytes == 0
    assert by_name["smem"].extern
    assert module.function("vprintf") is None


def test_text_that_is_no_ptx_names_its_line() -> None:
    with pytest.raises(UnsupportedError, match="PTX line 5"):
        parse(HEAD + ".entry k()\n{ §; }")
    with pytest.raises(UnsupportedError, match="32-bit address size"):
        parse(".version 8.5\n.target sm_90\n.address_size 32\n")
