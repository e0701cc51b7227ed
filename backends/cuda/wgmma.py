"""The text of Hopper's products of four warps (wgmma): assembly with a list of registers for each size, so no template.

d has 64 rows and N columns, 16 rows a warp. With g = lane / 4 and t = lane % 4, element 4j + e of a lane is row
g + 8 * (e / 2), column 8j + 2t + e % 2. Operands in registers (rs) hold 64 rows of a as kt_mma_m16n8k16 and m16n8k32 do.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

#: Element types of operands: the instruction's K, and the type of its accumulators.
TYPES = {
    "bf16": (16, "float"),
    "f16": (16, "float"),
    "e4m3": (32, "float"),
    "e5m2": (32, "float"),
    "s8": (32, "kt_i32"),
}
_FLOAT8 = ("e4m3", "e5m2")


@dataclass(frozen=True, order=True)
class Product:
    """One instruction: N columns, the operands' types, and where a comes from: "ss" shared memory, "rs" registers."""

    n: int
    a: str
    b: str
    form: str

    def __post_init__(self) -> None:
        if self.a not in TYPES or self.b not in TYPES or self.form not in ("ss", "rs"):
            raise ValueError(f"no product {self}")
        if self.a != self.b and not {self.a, self.b} <= set(_FLOAT8):
            raise ValueError(f"no product of {self.a} and {self.b}")
        step = 8 if self.a != "s8" or self.n <= 32 else 16
        if not 8 <= self.n <= 256 or self.n % step:
            raise ValueError(f"{self.a} products have 8 to 256 columns by {step}, not {self.n}")

    @property
    def k(self) -> int:
        """Columns of a, rows of b."""
        return TYPES[self.a][0]

    @property
    def accumulator(self) -> str:
        """The type of an accumulator."""
        return TYPES[self.a][1]

    @property
    def name(self) -> str:
        """The name of the wrapper."""
        types = self.a if self.a == self.b else f"{self.a}_{self.b}"
        return f"kt_wgmma_m64n{self.n}k{self.k}_{types}_{self.form}"

    @property
    def majors(self) -> tuple[str, ...]:
        """The template arguments that choose majors: 16-bit operands in shared memory may be MN-major."""
        return () if self.k == 32 else ("TA", "TB") if self.form == "ss" else ("TB",)


def wrappers(
    products: Iterable[Product], sizes: Collection[int] = (), integer_sizes: Collection[int] = ()
) -> str:
    """The functions that a kernel needs.

    For each product, with R >= OFFSET + N / 2 the length of an array of accumulators (kt_i32 for s8):
      template <int TA = 0, int TB = 0, int OFFSET = 0> name_ss(float (&d)[R], kt_desc a, kt_desc b, bool accumulate)
      template <int TB = 0, int OFFSET = 0> name_rs(float (&d)[R], kt_u32 a0, a1, a2, a3, kt_desc b, bool accumulate)
    TA, TB: 0 K-major, 1 MN-major; 8-bit types have OFFSET alone.

    For each size R of accumulators: kt_engine_wait<N>(d), and kt_engine_pin(d), which makes no instruction: uses of d stay on
    their side of it. With two sizes or more of one type, or twice the same: kt_engine_wait<N>(d, e), (d, e, f).
    """
    text = [_product(p) for p in sorted(set(products))]
    for type, letter, of in (("float", "f", sizes), ("kt_i32", "r", integer_sizes)):
        text += [_wait(type, letter, size) for size in sorted(set(of))]
        if of:
            text.append(_WAITS.replace("TYPE", type))
    return "\n".join(text)


def _product(p: Product) -> str:
    count = p.n // 2
    letter = "r" if p.a == "s8" else "f"
    d = ", ".join(f"%{i}" for i in range(count))
    outs = ", ".join(f'"+{letter}"(d[OFFSET + {i}])' for i in range(count))
    if p.form == "ss":
        parameters, given = "kt_desc a, ", "a"
        a, ins, next_ = f"%{count}", '"l"(a)', count + 1
    else:
        parameters, given = "kt_u32 a0, kt_u32 a1, kt_u32 a2, kt_u32 a3, ", "a0, a1, a2, a3"
        a = "{" + ", ".join(f"%{count + i}" for i in range(4)) + "}"
        ins, next_ = ", ".join(f'"r"(a{i})' for i in range(4)), count + 4
    chosen = "".join(f", %{next_ + 2 + i}" for i in range(len(p.majors)))
    constants = "".join(f', "n"({m})' for m in p.majors)
    scales = "" if p.a == "s8" else ", 1, 1"
    template = ", ".join([*(f"int {m} = 0" for m in p.majors), "int OFFSET = 0", "int R"])
    types = ".s32.s8.s8" if p.a == "s8" else f".f32.{p.a}.{p.b}"
    sim_types = ", ".join(f"kt_sim::{t.capitalize()}" for t in (p.a, p.b))
    majors = ", ".join(m if m in p.majors else "0" for m in ("TA", "TB"))
    return f"""template <{template}>
KT_FN void {p.name}({p.accumulator} (&d)[R], {parameters}kt_desc b, bool accumulate KT_SITE) {{
  static_assert(OFFSET >= 0 && OFFSET + {count} <= R, "the accumulators lie outside the array");
  KT_HERE;
  KT_ASM((kt_sim::wgmma<{p.n}, {sim_types}, {majors}>(d + OFFSET, {given}, b, accumulate)),
         "{{ .reg .pred add;\\nsetp.ne.b32 add, %{next_ + 1}, 0;\\n"
         "wgmma.mma_async.sync.aligned.m64n{p.n}k{p.k}{types} {{{d}}}, {a}, %{next_}, add{scales}{chosen}; }}"
         : {outs}
         : {ins}, "l"(b), "r"(kt_u32(accumulate)){constants});
}}
"""


def _wait(type: str, letter: str, size: int) -> str:
    outs = ", ".join(f'"+{letter}"(d[{i}])' for i in range(size))
    return f"""template <int N>
KT_FN void kt_engine_wait({type} (&d)[{size}] KT_SITE) {{
  KT_HERE;
  KT_ASM(kt_sim::wgmma_wait(N), "wgmma.wait_group.sync.aligned %{size};" : {outs} : "n"(N) : "memory");
}}
[[maybe_unused]] KT_FN void kt_engine_pin({type} (&d)[{size}]) {{ KT_ASM((void)d, "" : {outs} :: "memory"); }}
"""


# A wait that names an array, and empty assembly that names the others: neither moves across the other.
_WAITS = """template <int N, int R, int S>
KT_FN void kt_engine_wait(TYPE (&d)[R], TYPE (&e)[S] KT_SITE) {
  kt_engine_wait<N>(d KT_PASS_SITE);
  kt_engine_pin(e);
}
template <int N, int R, int S, int T>
KT_FN void kt_engine_wait(TYPE (&d)[R], TYPE (&e)[S], TYPE (&f)[T] KT_SITE) {
  kt_engine_wait<N>(d KT_PASS_SITE);
  kt_engine_pin(e);
  kt_engine_pin(f);
}
"""
