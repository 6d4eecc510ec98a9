# SPDX-License-Identifier: Apache-2.0
#
# One check of the coverage table; prints a line for each fault:
# tests/repo/coverage.py CHECK INTERFACE COVERAGE OPS
# COVERAGE and OPS are what `bolide coverage --json` and `bolide ops --json` print.

import fnmatch
import json
import sys

PREFIX = "flashinfer."
# What may be without effect, refused or left for later, by decision; nothing else may.
HINTS = {
    "enable_pdl", "pdl", "non_blocking", "use_fp16_qk_reduction", "use_fp16_softmax",
    "skip_softmax_threshold_scale_factor", "multi_ctas_kv_counter_buffer", "use_tensor_cores",
    "dsa_graph_safe", "sm_count", "cute_dsl_impl", "hca_use_persistent", "load_balance",
    "is_cuda_graph_compatible", "bf16q_fp8kv_transform_mode",
}
REFUSED = {"use_profiler", "profiler_buffer", "uses_spcompress", "sage_attn_sfs",
           "num_elts_per_sage_attn_blk"}
LATER = {"use_nvfp4", "use_mxfp8", "global_scaling_factor", "sf_out", "kv_cache_sf", "o_sf_scale",
         "o_sf_vec_size", "block_scale", "k_sf_cache", "v_sf_cache"}
ALWAYS = {"deterministic", "is_deterministic", "workspace"}
# Ought to be honoured; this list only gets shorter.
MISSING = {"jit_args", "jit_kwargs", "rope_scale", "rope_theta"}
ALLOWED = {"hint": HINTS, "refused": REFUSED, "later": LATER, "always": ALWAYS, "missing": MISSING}
ENUMS = {"pos_encoding_mode": "PosEncodingMode", "kv_layout": "TensorLayout",
         "tie_break": "TopKTieBreak"}


def lines(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def name_of(row):
    """Name below the package of what the row stands for."""
    name = row.get("same_as") or row["module"] + "." + row["name"]
    return name[len(PREFIX):] if name.startswith(PREFIX) else name


def entries(rows, coverage, _):
    """Each row has its parameters or a pattern, and each entry and pattern serves a row."""
    table, patterns, used = {}, [], set()
    for line in coverage:
        if "pattern" in line:
            patterns.append(line["pattern"])
        elif line["param"] in table.setdefault(line["name"], {}):
            print(f"{line['name']}: {line['param']}: two entries")
        else:
            table[line["name"]][line["param"]] = line
    served = set()
    for row in rows:
        name = name_of(row)
        if name in table:
            params = row.get("params", []) + row.get("effective_params", [])
            for param in params:
                if param["name"] not in table[name]:
                    print(f"{name}: {param['name']}: no entry")
                served.add((name, param["name"]))
            used.add(name)
            continue
        pattern = next((p for p in patterns if fnmatch.fnmatchcase(name, p)), None)
        if pattern is None:
            print(f"{name}: neither an entry nor a pattern")
        used.add(pattern)
    for name in list(table) + patterns:
        if name not in used:
            print(f"{name}: no row of the interface")
    for name, params in table.items():
        for param in params:
            if (name, param) not in served:
                print(f"{name}: {param}: the interface has no such parameter")


def row_kinds(op):
    return {row["name"]: row for phase in ("plan", "run") for row in op.get(phase, [])}


def values(rows, coverage, ops):
    """Every value of a backend, of an enum and of a bool is spoken for."""
    table = {(line["name"], line["param"]): line for line in coverage if "param" in line}
    members = {row["name"]: [m["name"] for m in row["members"]] for row in rows if row.get("members")}
    by_name = {op["name"]: row_kinds(op) for op in ops}
    for row in rows:
        for param in row.get("params", []) + row.get("effective_params", []):
            line = table.get((name_of(row), param["name"]))
            if line is None:
                continue
            where = f"{line['name']}: {param['name']}"
            kinds = [by_name[line["op"]][r] for r in line.get("rows", [])]
            if param["name"] == "backend" and line["status"] == "python":
                if sorted(line.get("values", [])) != sorted(row.get("backends", [])):
                    print(f"{where}: expected the values {row.get('backends')}")
            if param["name"] == "backend" and kinds:
                if sorted(kinds[0]["choices"].split()) != sorted(row["backends"]):
                    print(f"{where}: the row has {kinds[0]['choices']}; expected {row['backends']}")
            if param["name"] in ENUMS and kinds:
                lacking = {name.upper() for name in members[ENUMS[param["name"]]]}
                lacking -= set(kinds[0]["choices"].upper().split())
                if lacking:
                    print(f"{where}: the row lacks {sorted(lacking)}")
            if param["default"] in ("True", "False"):
                if any(kind["kind"] not in ("bool", "in", "out", "inout") for kind in kinds):
                    print(f"{where}: a row of {[kind['kind'] for kind in kinds]} cannot hold a bool")
                if line["status"] in ("later", "refused") and line.get("values") != ["True"]:
                    print(f"{where}: {line['status']}: expected the value True alone")


def limits(_, coverage, __):
    """Nothing is hinted, refused or left for later beyond what was decided."""
    for line in coverage:
        if "pattern" in line:
            continue
        allowed = ALLOWED.get(line["status"])
        if allowed is not None and line["param"] not in allowed:
            print(f"{line['name']}: {line['param']}: {line['status']} goes beyond what was decided")
        if line["status"] in ("refused", "later", "missing", "python") and not line.get("reason"):
            print(f"{line['name']}: {line['param']}: {line['status']} needs a reason")


def operators(_, coverage, ops):
    """Each operator has FlashInfer's name beside it, or is one of our own."""
    named = {line["op"] for line in coverage if "op" in line}
    with open("tools/coverage.txt", encoding="utf-8") as file:
        named |= {line.split()[1] for line in file if line.startswith("own: ")}
    for op in ops:
        if op["name"] not in named:
            print(f"{op['name']}: not in tools/coverage.txt")


def main():
    check, interface, coverage, ops = sys.argv[1:5]
    with open(interface, encoding="utf-8") as file:
        rows = json.load(file)
    {"entries": entries, "values": values, "limits": limits, "operators": operators}[check](
        rows, lines(coverage), lines(ops))


main()
