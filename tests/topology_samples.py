"""A small file of each format that topologies are read from, written for these tests in the documented form."""

from __future__ import annotations

PAIRS = """src,dst,bandwidth_Gbps,rtt_ms
paris,tokyo,1.2,240
paris,texas,2,110
tokyo,texas,0.8,
texas,tokyo,1,150
tokyo,paris,1.1,236
texas,paris,1.9,110
"""
CAPPED = """# measured by hand
Source node;Target node;Throughput (MB/s);Delay [us];src_site;dst_site;src_cap_Gbps;dst_cap_Gbps
a1;a2;1250,5;10;east;east;10;10
a1;b1;500;900;east;west;10;4
a2;b1;400;950;east;west;;4
"""
MATRIX = """Gbit/s\tparis\ttokyo\ttexas
paris\t\t1.2\t2
tokyo\t1.1\t-\t0.8
texas\t1.9\t1\tx
"""

SAMPLES = {"pairs.csv": PAIRS, "capped.csv": CAPPED, "matrix.tsv": MATRIX}
