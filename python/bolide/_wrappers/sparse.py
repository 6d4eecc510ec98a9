# SPDX-License-Identifier: Apache-2.0
"""Attention over some blocks of the matrix of queries and keys.

The library takes row blocks with lists of column blocks of one size. Here blocks of other sizes are
listed as several of a size that divides them, heads with blocks of their own are laid behind one
another, and masks by block are put into the order of the rows. Nothing is ever spread out to the
whole matrix.
"""

from __future__ import annotations

import math
import sys
from typing import Any, NamedTuple, Optional, Tuple, Union

from .. import _dtypes, _frameworks
from .._library import torch
from . import _memory
from ._base import bind, options_of, outputs_bit
from .prefill import Prefill

Tensor = Any

_OPERATORS = bind(
    "block_sparse_attention",
    "qo_indptr indptr M N C num_qo_heads num_kv_heads head_dim kv_layout q_data_type kv_data_type "
    "o_data_type pos_encoding_mode causal use_custom_mask logits_soft_cap sm_scale rope_scale "
    "rope_theta",
    "q k v indices packed_custom_mask q_scale k_scale v_scale out lse")


# ---- index arithmetic on either framework --------------------------------------------------------


def int64s(x: Any) -> Any:
    """Integers as int64."""
    return x.to(torch.int64) if _frameworks.is_torch(x) else x.astype("int64")


def int32s(x: Any) -> Any:
    """Integers as int32, contiguous."""
    if _frameworks.is_torch(x):
        return x.to(torch.int32).contiguous()
    return sys.modules["numpy"].ascontiguousarray(x, dtype="int32")


def numbers(like: Any, values: Any) -> Any:
    """A range or a list of integers as int64, beside another tensor."""
    if _frameworks.is_torch(like):
        if isinstance(values, range):
            return torch.arange(values.start, values.stop, values.step, device=like.device)
        return torch.tensor(values, dtype=torch.int64, device=like.device)
    numpy = sys.modules["numpy"]
    if isinstance(values, range):
        return numpy.arange(values.start, values.stop, values.step)
    return numpy.array(values, dtype="int64")


def repeat(x: Any, counts: Any) -> Any:
    """Element i of x, counts[i] times."""
    return (x.repeat_interleave(counts) if _frameworks.is_torch(x)
            else sys.modules["numpy"].repeat(x, counts))


def sums(counts: Any) -> Any:
    """0, and the sums of the first one, two, … elements."""
    out = _frameworks.full(counts, (counts.shape[0] + 1,), "int64", 0)
    out[1:] = counts.cumsum(0)
    return out


def within(counts: Any) -> Any:
    """0 … counts[0] - 1, 0 … counts[1] - 1, …"""
    starts = sums(counts)
    return numbers(counts, range(int(starts[-1]))) - repeat(starts[:-1], counts)


def places(x: Any) -> tuple:
    """Indices of the elements that are not 0, in order."""
    return x.nonzero(as_tuple=True) if _frameworks.is_torch(x) else x.nonzero()


class Blocks(NamedTuple):
    """What is seen of a matrix, or of several behind one another: int64 on the host."""

    rows: Any    # [b] rows of each row block
    counts: Any  # [b] entries of each row block
    pages: Any   # [entries] which stretch of `page` keys
    source: Any  # [entries] of which block the stretch is a part
    sub: Any     # [entries] and which part
    m: int
    n: int
    page: int

    def spread(self) -> tuple[Any, Any]:
        """Row and entry of every pair of them, row by row: the order of a mask."""
        of_row = repeat(self.counts, self.rows)
        row = repeat(numbers(of_row, range(of_row.shape[0])), of_row)
        return row, repeat(repeat(sums(self.counts)[:-1], self.rows), of_row) + within(of_row)

    def mask(self, mask: Any, r: int, c: int) -> Any:
        """A mask ``[nnz, R, C]`` in the order of the rows."""
        row, entry = self.spread()
        in_block = within(self.rows)[row]
        index = (self.source[entry] * r + in_block) * (c // self.page) + self.sub[entry]
        if _frameworks.is_torch(mask):
            index = index.to(mask.device)
        return mask.reshape(-1, self.page)[index].reshape(-1)

    def causal(self) -> Any:
        """A mask that hides what lies behind a row's own position."""
        row, entry = self.spread()
        last = row % max(self.m, 1) + self.n - self.m
        first = self.pages[entry] * self.page % max(self.n, 1)
        return (first[:, None] + numbers(row, range(self.page)) <= last[:, None]).reshape(-1)


def blocks_of(rows: Any, counts: Any, starts: Any, sizes: Any, m: int, n: int,
              page: int) -> Blocks:
    """From blocks that begin at key `starts` and have `sizes` keys, both multiples of page."""
    parts = sizes // page
    of_block = sums(counts)
    source = repeat(numbers(parts, range(parts.shape[0])), parts)
    sub = within(parts)
    entries = sums(parts)[of_block]
    return Blocks(rows, entries[1:] - entries[:-1], (starts // page)[source] + sub, source, sub, m,
                  n, page)


def convert_bsr_mask_layout(mask: Tensor, indptr: Tensor) -> Tensor:
    """A mask by blocks in the order that a custom mask has.

    :param mask: ``[nnz, R, C]`` bool. :param indptr: ``[MB + 1]``: first block of each row block.
    :returns: ``[nnz * R * C]``: for each row of each row block its elements in all blocks of it.
    """
    nnz, r, c = mask.shape
    starts = int64s(_memory.to_host(indptr)[0])
    counts = starts[1:] - starts[:-1]
    sizes = _frameworks.full(starts, (nnz,), "int64", c)
    rows = _frameworks.full(starts, (counts.shape[0],), "int64", r)
    return blocks_of(rows, counts, sizes * 0, sizes, r, c, c if c else 1).mask(mask, r, c)


# ---- wrappers ------------------------------------------------------------------------------------


class Sparse(Prefill):
    """What both wrappers share: a plan of blocks, and a run of it."""

    _operators = _OPERATORS

    def __init__(self, float_workspace_buffer: Tensor, backend: str):
        super().__init__(float_workspace_buffer, "NHD", False, {}, None, None, backend, None, None)
        self._indices: Any = None

    def _plan_blocks(self, blocks: Blocks, num_qo_heads: int, num_kv_heads: int, head_dim: int,
                     mask: Any, packed_mask: Any, causal: bool, q_data_type: Any,
                     kv_data_type: Any, o_data_type: Any, sm_scale: Optional[float],
                     options: tuple) -> None:
        """Plans. On the GPU a mask stands in for causal: the kernels of Hopper take masks only."""
        masked = mask is not None or packed_mask is not None
        if causal and not masked and getattr(self.device, "type", "cpu") != "cpu":
            mask, masked = blocks.causal(), True
        kv_lens = blocks.counts * blocks.page
        packed = self._pack_mask(mask, packed_mask, blocks.rows.tolist(), kv_lens.tolist())
        q = _dtypes.of(q_data_type).bit
        arguments = {
            "qo_indptr": int32s(sums(blocks.rows)), "indptr": int32s(sums(blocks.counts)),
            "M": blocks.m, "N": blocks.n, "C": blocks.page, "num_qo_heads": num_qo_heads,
            "num_kv_heads": num_kv_heads, "head_dim": head_dim, "q_data_type": q,
            "kv_data_type": q if kv_data_type is None else _dtypes.of(kv_data_type).bit,
            "o_data_type": outputs_bit(q_data_type, o_data_type), "use_custom_mask": masked,
        }
        self._make_first_plan(arguments, options_of(causal and not masked, *options))
        self._keep(arguments, sm_scale, head_dim, head_dim)
        self._indices = _memory.to_device(int32s(blocks.pages), self.device)
        self._keep_mask(packed)

    def _need_plan(self) -> None:
        if self._plan_info is None:
            raise RuntimeError(f"{type(self).__name__}: plan() must come before run()")

    def _run_blocks(self, q: Tensor, k: Tensor, v: Tensor, scales: tuple, out: Tensor,
                    lse: Optional[Tensor]) -> None:
        self._before_run()
        q_scale, k_scale = self._scales(*scales[:2])
        self._operators.run(q, k, v, self._indices, self._custom_mask_buf if self._masked else None,
                            q_scale, k_scale, scales[2], out, lse, self._workspace.address,
                            self._plan_info.address)

    def _set_forward(self, pos_encoding_mode, logits_soft_cap, sm_scale, rope_scale,
                     rope_theta) -> None:
        """The options of FlashInfer's older forward, which has none for causal."""
        self._forward(self._causal, pos_encoding_mode, -1, logits_soft_cap, sm_scale, rope_scale,
                      rope_theta)


def _check(condition: Any, name: str, argument: str, expected: str, got: Any) -> None:
    if not condition:
        raise ValueError(f"{name}: {argument}: expected {expected}; got {got}")


def behind(x: Tensor, group: int) -> Tensor:
    """``[parts * group, tokens, d]`` as ``[parts * tokens, group, d]``: parts of heads behind one
    another. A view where memory allows it."""
    parts, tokens, rest = x.shape[0] // group, x.shape[1], tuple(x.shape[2:])
    return (x.reshape((parts, group, tokens, *rest)).swapaxes(1, 2)
            .reshape((parts * tokens, group, *rest)))


def beside(x: Tensor, parts: int) -> Tensor:
    """:func:`behind` undone."""
    tokens, group, rest = x.shape[0] // parts, x.shape[1], tuple(x.shape[2:])
    return (x.reshape((parts, tokens, group, *rest)).swapaxes(1, 2)
            .reshape((parts * group, tokens, *rest)))


class BlockSparseAttentionWrapper(Sparse):
    """Attention over a matrix of M queries and N keys of which some blocks of R x C are seen.

    The blocks are those of a matrix in block sparse row format, or of a map. Any R and C will do.
    Positions are places in the matrix, aligned at the bottom right: query i stands at key ``i + N -
    M``. FlashInfer counts within the list of blocks instead, against its own text.

    :param float_workspace_buffer: uint8 on the device of the tensors, aligned to 16 bytes.
    :param backend: a name of FlashInfer's; all stand for the same contract.
    """

    _backends = ("auto", "fa2", "fa3", "vsa_sm100_blk128", "vsa_sm100_blk64", "vsa_sm120_blk64")

    def __init__(self, float_workspace_buffer: Tensor, backend: str = "auto"):
        super().__init__(float_workspace_buffer, backend)
        self.M = self.N = self.R = self.C = 0
        self._parts = 1

    def plan(
        self, indptr: Optional[Tensor], indices: Optional[Tensor], M: int, N: int, R: int, C: int,
        num_qo_heads: int, num_kv_heads: int, head_dim: int, mask: Optional[Tensor] = None,
        packed_mask: Optional[Tensor] = None, causal: bool = False,
        pos_encoding_mode: str = "NONE", use_fp16_qk_reduction: bool = False,
        logits_soft_cap: Optional[float] = None, sm_scale: Optional[float] = None,
        rope_scale: Optional[float] = None, rope_theta: Optional[float] = None,
        q_data_type: Any = "float16", kv_data_type: Any = None, o_data_type: Any = "float16",
        non_blocking: bool = True, block_mask: Optional[Tensor] = None,
    ) -> None:
        """Prepares runs over the blocks at hand. Arrays on the GPU cost one wait.

        :param indptr: ``[ceil(M / R) + 1]`` int32: row block i sees the column blocks
            ``indices[indptr[i]:indptr[i + 1]]``, in any order; a row block without any gives 0 and
            an lse of -inf. :param indices: ``[nnz]`` int32, below ``ceil(N / C)``.
        :param M: rows; the last row block is shorter where R does not divide M.
        :param N: columns; the last column block likewise.
        :param mask: ``[nnz, R, C]`` bool: what of each block is seen; it replaces causal.
        :param packed_mask: the same in bits, uint8, the lowest first: ``segment_packbits`` of
            :func:`convert_bsr_mask_layout`, each row block from a new byte. It goes before mask.
        :param causal: query i sees keys up to ``i + N - M``.
        :param pos_encoding_mode: "NONE", and on the CPU "ROPE_LLAMA" and "ALIBI".
        :param o_data_type: float16 whatever q has, as in FlashInfer.
        :param block_mask: ``[num_kv_heads, MB, NB]`` or ``[num_qo_heads, MB, NB]`` bool in the
            place of indptr, indices and masks: the blocks that each head sees; heads of one key
            head see the same. Where heads differ, runs copy q, k, v and out once.
        :param use_fp16_qk_reduction: with non_blocking a hint.
        """
        name = f"{type(self).__name__}.plan"
        _check(M >= 0 and N >= 0 and R >= 1 and C >= 1, name, "M, N, R, C", "sizes", (M, N, R, C))
        if block_mask is not None:
            _check(mask is None and packed_mask is None, name, "mask", "None with block_mask",
                   "a mask")
            parts, counts, columns = self._from_map(name, block_mask, (-(-M // R), -(-N // C)),
                                                    num_qo_heads, num_kv_heads)
        else:
            parts = 1
            counts, columns = self._from_lists(name, indptr, indices, (-(-M // R), -(-N // C)))
        rows = M - numbers(counts, range(0, M, R))
        rows[rows > R] = R
        rows = rows[numbers(counts, range(counts.shape[0])) % max(rows.shape[0], 1)]
        part, column = columns // max(-(-N // C), 1), columns % max(-(-N // C), 1)
        sizes = N - column * C
        sizes[sizes > C] = C
        blocks = blocks_of(rows, counts, part * N + column * C, sizes, M, N, math.gcd(C, N) or C)
        if mask is not None and packed_mask is None:
            _check(tuple(mask.shape) == (columns.shape[0], R, C), name, "mask",
                   [columns.shape[0], R, C], list(mask.shape))
            mask = blocks.mask(mask, R, C)
        self._plan_blocks(
            blocks, num_qo_heads // parts, num_kv_heads // parts, head_dim,
            mask if packed_mask is None else None, packed_mask, causal, q_data_type, kv_data_type,
            o_data_type, sm_scale, (pos_encoding_mode, -1, logits_soft_cap, rope_scale, rope_theta))
        self.M, self.N, self.R, self.C, self._parts = M, N, R, C, parts
        self._num_qo_heads, self._num_kv_heads = num_qo_heads, num_kv_heads

    begin_forward = plan

    @staticmethod
    def _from_lists(name, indptr, indices, shape) -> tuple[Any, Any]:
        """Entries of each row block, and the column block of each entry."""
        _check(indptr is not None and indices is not None, name, "indptr, indices",
               "tensors without block_mask", None)
        starts, columns = map(int64s, _memory.to_host(indptr, indices))
        counts = starts[1:] - starts[:-1]
        _check(counts.shape[0] == shape[0], name, "indptr", [shape[0] + 1], [starts.shape[0]])
        _check(int(starts[0]) == 0 and bool((counts >= 0).all())
               and int(starts[-1]) <= columns.shape[0], name, "indptr",
               f"values that rise from 0 to at most {columns.shape[0]}, the length of indices",
               f"{int(starts[0])} to {int(starts[-1])}")
        columns = columns[:int(starts[-1])]
        least, most = (int(columns.min()), int(columns.max())) if columns.shape[0] else (0, -1)
        _check(least >= 0 and most < shape[1], name, "indices", f"0 to {shape[1] - 1}",
               f"{least} to {most}")
        return counts, columns

    @staticmethod
    def _from_map(name, block_mask, shape, num_qo_heads, num_kv_heads) -> tuple[int, Any, Any]:
        """How many parts there are, and the lists of all of them; one where all heads agree."""
        heads = block_mask.shape[0]
        _check(heads in (num_qo_heads, num_kv_heads) and tuple(block_mask.shape[1:]) == shape, name,
               "block_mask", [num_kv_heads, *shape], list(block_mask.shape))
        seen = _memory.to_host(block_mask)[0] != 0
        group = heads // num_kv_heads
        each = seen.reshape((num_kv_heads, group, *shape))
        _check(bool((each == each[:, :1]).all()), name, "block_mask",
               "the same blocks for all heads of one key head", "different ones")
        each = each[:, 0]
        if bool((each == each[:1]).all()):
            each = each[:1]
        part, _, column = places(each)
        return each.shape[0], int64s(each.sum(2)).reshape(-1), part * shape[1] + column

    def forward(self, q: Tensor, k: Tensor, v: Tensor, scale_q: Optional[Tensor] = None,
                scale_k: Optional[Tensor] = None, scale_v: Optional[Tensor] = None,
                pos_encoding_mode: str = "NONE", use_fp16_qk_reduction: bool = False,
                logits_soft_cap: Optional[float] = None, sm_scale: Optional[float] = None,
                rope_scale: Optional[float] = None, rope_theta: Optional[float] = None) -> Tensor:
        """An older form of :meth:`run`. Its options replace those of the plan; where they differ,
        the first call plans again."""
        self._set_forward(pos_encoding_mode, logits_soft_cap, sm_scale, rope_scale, rope_theta)
        return self.run(q, k, v, scale_q, scale_k, scale_v)

    def run(self, q: Tensor, k: Tensor, v: Tensor, scale_q: Optional[Tensor] = None,
            scale_k: Optional[Tensor] = None, scale_v: Optional[Tensor] = None,
            out: Optional[Tensor] = None, lse: Optional[Tensor] = None, return_lse: bool = False,
            enable_pdl: Optional[bool] = None) -> Union[Tensor, Tuple[Tensor, Tensor]]:
        """Attention over the blocks as planned.

        :param q: ``[M, h_q, d]``. :param k: ``[N, h_kv, d]``, v likewise; strides are honoured.
        :param scale_q: with scale_k and scale_v: what a stored 1.0 stands for, a number, or a
            float32 tensor of one element or one for each head.
        :param out: ``[M, h_q, d]`` of the planned dtype. :param lse: ``[M, h_q]`` float32, to base
            2. :param enable_pdl: a hint.
        :returns: out, or (out, lse) with return_lse.
        """
        self._need_plan()
        out, lse = self._outputs(q, out, lse, return_lse)
        scales = (scale_q, scale_k, scale_v)
        if self._parts == 1:
            self._run_blocks(q, k, v, scales, out, lse)
            return (out, lse) if return_lse else out
        for argument, scale in zip(("scale_q", "scale_k", "scale_v"), scales):
            _check(not _frameworks.is_tensor(scale) or math.prod(scale.shape) == 1,
                   f"{type(self).__name__}.run", argument,
                   "one element where heads see different blocks",
                   getattr(scale, "shape", None))
        for argument, x, tokens in (("q", q, self.M), ("k", k, self.N), ("v", v, self.N)):
            _check(x.ndim == 3 and x.shape[0] == tokens, f"{type(self).__name__}.run", argument,
                   f"{tokens} rows, as planned", list(x.shape))
        group = self._num_qo_heads // self._num_kv_heads
        rows = self._num_kv_heads * self.M
        own = _frameworks.empty(q, (rows, group, self._d_vo), self._o_bit)
        own_lse = None if lse is None else _frameworks.empty(q, (rows, group), "float32")
        self._run_blocks(behind(q.swapaxes(0, 1), group), behind(k.swapaxes(0, 1), 1),
                         behind(v.swapaxes(0, 1), 1), scales, own, own_lse)
        out[...] = beside(own, self._num_kv_heads).swapaxes(0, 1)
        if lse is not None:
            lse[...] = beside(own_lse, self._num_kv_heads).swapaxes(0, 1)
        return (out, lse) if return_lse else out


class VariableBlockSparseAttentionWrapper(Sparse):
    """Attention over a matrix of queries and keys that is cut into blocks of any sizes, for each
    key head in its own way, and of which each key head sees some.

    :param float_workspace_buffer: uint8 on the device of the tensors, aligned to 16 bytes.
    :param backend: "auto", "fa2" or "fa3".
    """

    _backends = ("auto", "fa2", "fa3")

    def __init__(self, float_workspace_buffer: Tensor, backend: str = "auto"):
        super().__init__(float_workspace_buffer, backend)
        self._rows = self._keys = 0

    def plan(
        self, block_mask_map: Tensor, block_row_sz: Tensor, block_col_sz: Tensor,
        num_qo_heads: int, num_kv_heads: int, head_dim: int, causal: bool = False,
        pos_encoding_mode: str = "NONE", use_fp16_qk_reduction: bool = False,
        logits_soft_cap: Optional[float] = None, sm_scale: Optional[float] = None,
        rope_scale: Optional[float] = None, rope_theta: Optional[float] = None,
        non_blocking: bool = True, q_data_type: Any = "float16", kv_data_type: Any = None,
    ) -> None:
        """Prepares runs over the blocks at hand. Arrays on the GPU cost one wait for each dtype.

        :param block_mask_map: ``[num_kv_heads, MB, NB]`` bool: the blocks that are seen.
        :param block_row_sz: ``[num_kv_heads, MB]``: rows of each row block; the sum is the same for
            all heads. 0 is allowed. :param block_col_sz: ``[num_kv_heads, NB]``, likewise.
        :param causal: query i of n sees keys up to ``i + s - n`` of s, as they lie.
        :param pos_encoding_mode: "NONE", and on the CPU "ROPE_LLAMA" and "ALIBI".
        :param use_fp16_qk_reduction: with non_blocking a hint.
        """
        name = f"{type(self).__name__}.plan"
        for argument, x, want in (
                ("block_mask_map", block_mask_map,
                 (num_kv_heads, block_row_sz.shape[-1], block_col_sz.shape[-1])),
                ("block_row_sz", block_row_sz, (num_kv_heads, block_row_sz.shape[-1])),
                ("block_col_sz", block_col_sz, (num_kv_heads, block_col_sz.shape[-1]))):
            _check(tuple(x.shape) == want, name, argument, list(want), list(x.shape))
        seen, rows, sizes = _memory.to_host(block_mask_map, block_row_sz, block_col_sz)
        rows, sizes = int64s(rows), int64s(sizes)
        for argument, x in (("block_row_sz", rows), ("block_col_sz", sizes)):
            total = x.sum(1)
            _check(bool((x >= 0).all()) and bool((total == total[:1]).all()), name, argument,
                   "sizes of at least 0, with the same sum for each head", x.tolist())
        m, n = (int(x[0].sum()) if num_kv_heads else 0 for x in (rows, sizes))
        part, row, column = places(seen != 0)
        first = sums(sizes.reshape(-1))[:-1].reshape(sizes.shape)
        counts = int64s((seen != 0).sum(2)).reshape(-1)
        page = math.gcd(*sizes.reshape(-1).tolist()) or 1
        blocks = blocks_of(rows.reshape(-1), counts, first[part, column], sizes[part, column], m, n,
                           page)
        self._plan_blocks(
            blocks, num_qo_heads // num_kv_heads, 1, head_dim, None, None, causal, q_data_type,
            kv_data_type, q_data_type, sm_scale,
            (pos_encoding_mode, -1, logits_soft_cap, rope_scale, rope_theta))
        self._rows, self._keys = m, n
        self._num_qo_heads, self._num_kv_heads = num_qo_heads, num_kv_heads

    def forward(self, q: Tensor, k: Tensor, v: Tensor, pos_encoding_mode: str = "NONE",
                use_fp16_qk_reduction: bool = False, logits_soft_cap: Optional[float] = None,
                sm_scale: Optional[float] = None, rope_scale: Optional[float] = None,
                rope_theta: Optional[float] = None) -> Tensor:
        """An older form of :meth:`run`. Its options replace those of the plan; where they differ,
        the first call plans again."""
        self._set_forward(pos_encoding_mode, logits_soft_cap, sm_scale, rope_scale, rope_theta)
        return self.run(q, k, v)

    def run(self, q: Tensor, k: Tensor, v: Tensor, out: Optional[Tensor] = None,
            lse: Optional[Tensor] = None, return_lse: bool = False,
            enable_pdl: Optional[bool] = None) -> Union[Tensor, Tuple[Tensor, Tensor]]:
        """Attention over the blocks as planned.

        :param q: ``[h_q, n, d]``. :param k: ``[h_kv, s, d]``, v likewise. Contiguous keys and
            values are read as they lie; queries of several heads a key head, and the result, are
            copied once.
        :param out: ``[h_q, n, d]`` of q's dtype, or as FlashInfer has it ``[h_kv * n, h_q / h_kv,
            d]``: then the result is written there, and returned in the other form as well.
        :param lse: ``[h_q, n]`` float32, to base 2. :param enable_pdl: a hint.
        :returns: out ``[h_q, n, d]``, or (out, lse) with return_lse.
        """
        name = f"{type(self).__name__}.run"
        self._need_plan()
        for argument, x, want in (("q", q, (self._num_qo_heads, self._rows)),
                                  ("k", k, (self._num_kv_heads, self._keys)),
                                  ("v", v, (self._num_kv_heads, self._keys))):
            _check(x.ndim == 3 and tuple(x.shape[:2]) == want, name, argument, [*want, "d"],
                   list(x.shape))
        group = self._num_qo_heads // self._num_kv_heads
        rows = self._num_kv_heads * self._rows
        folded = out is not None and tuple(out.shape) == (rows, group, self._d_vo)
        own = out if folded else _frameworks.empty(q, (rows, group, self._d_vo), self._o_bit)
        own_lse = None
        if return_lse or lse is not None:
            own_lse = _frameworks.empty(q, (rows, group), "float32")
        self._run_blocks(behind(q, group), behind(k, 1), behind(v, 1), (None, None, None), own,
                         own_lse)
        found = beside(own, self._num_kv_heads)
        if out is not None and not folded:
            _check(_dtypes.of(out.dtype).bit == self._o_bit
                   and tuple(out.shape) == tuple(found.shape), name, "out", list(found.shape),
                   list(out.shape))
            out[...] = found
            found = out
        if lse is not None:
            lse[...] = beside(own_lse, self._num_kv_heads)
        elif own_lse is not None:
            lse = beside(own_lse, self._num_kv_heads)
        return (found, lse) if return_lse else found
