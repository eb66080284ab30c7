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


def _nccl_fabric() -> str:
    """Two servers of two sockets and two GPUs, joined by NVLink."""
    cpus = []
    for host in range(2):
        for cpu in range(2):
            rank = 2 * cpu + host
            cpus.append(
                f' <cpu host_hash="0x{host + 7:016x}" numaid="{cpu}" arch="arm64">\n'
                f'  <pci busid="0008:0{cpu}:00.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">\n'
                f'   <pci busid="0009:0{cpu}:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">\n'
                f'    <gpu dev="{cpu}" sm="100" rank="{rank}" gdr="1"><nvlink target="fffffff:ffff:ff" count="18" tclass="0x068000"/></gpu>\n'
                "   </pci>\n"
                f'   <pci busid="0010:0{cpu}:00.0" class="0x020700" link_speed="32.0 GT/s PCIe" link_width="16">\n'
                f'    <nic><net name="mlx5_{cpu}" dev="{cpu}" speed="400000" port="1" gdr="1"/></nic>\n'
                "   </pci>\n  </pci>\n </cpu>\n"
            )
    return f'<system version="1">\n{"".join(cpus)}</system>\n'


NCCL_FABRIC = _nccl_fabric()

HWLOC = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
 <object type="Machine" os_index="0" gp_index="1">
  <info name="HostName" value="node17"/>
  <object type="Package" os_index="0" gp_index="2">
   <object type="NUMANode" os_index="0" gp_index="3" local_memory="68556816384"/>
   <object type="Bridge" gp_index="10" bridge_type="0-1" depth="0" bridge_pci="0000:[16-1a]">
    <object type="Bridge" gp_index="11" bridge_type="1-1" depth="1" pci_busid="0000:16:00.0" pci_type="0604" pci_link_speed="31.507692">
     <object type="Bridge" gp_index="12" bridge_type="1-1" depth="2" pci_busid="0000:17:00.0" pci_type="0604" pci_link_speed="31.507692">
      <object type="PCIDev" gp_index="13" pci_busid="0000:18:00.0" pci_type="0302 [10de:20b0] [10de:134f] a1 00" pci_link_speed="31.507692">
       <object type="OSDev" gp_index="14" name="cuda1" subtype="CUDA" osdev_type="5"/>
       <object type="OSDev" gp_index="15" name="nvml0" subtype="NVML" osdev_type="1"/>
      </object>
     </object>
     <object type="Bridge" gp_index="16" bridge_type="1-1" depth="2" pci_busid="0000:17:01.0" pci_type="0604" pci_link_speed="15.753846">
      <object type="PCIDev" gp_index="17" pci_busid="0000:19:00.0" pci_type="0207 [15b3:101b] [15b3:0006] 00 00" pci_link_speed="15.753846">
       <object type="OSDev" gp_index="18" name="ib0" osdev_type="2"/>
       <object type="OSDev" gp_index="19" name="mlx5_0" osdev_type="3"/>
      </object>
     </object>
    </object>
   </object>
  </object>
  <object type="Package" os_index="1" gp_index="4">
   <object type="Bridge" gp_index="30" bridge_type="0-1" depth="0" bridge_pci="0000:[ae-c7]">
    <object type="PCIDev" gp_index="31" pci_busid="0000:b0:00.0" pci_type="0302 [10de:20b0] [10de:134f] a1 00" pci_link_speed="0.000000">
     <object type="OSDev" gp_index="32" name="cuda0" subtype="CUDA" osdev_type="5"/>
     <object type="OSDev" gp_index="33" name="nvml1" subtype="NVML" osdev_type="1"/>
    </object>
    <object type="PCIDev" gp_index="34" pci_busid="0000:b1:00.0" pci_type="0200 [8086:1521] [00d9:0021] 01 00" pci_link_speed="2.000000">
     <object type="OSDev" gp_index="35" name="eth0" osdev_type="2"/>
    </object>
    <object type="PCIDev" gp_index="36" subtype="NVSwitch" pci_busid="0000:c1:00.0" pci_type="0680 [10de:1af1] [0000:0000] a1 00" pci_link_speed="1.000000"/>
    <object type="PCIDev" gp_index="37" pci_busid="0000:c3:00.0" pci_type="0106 [8086:1d02] [00d9:0062] 06 00" pci_link_speed="1.000000"/>
   </object>
  </object>
 </object>
 <distances2 type="NUMANode" nbobjs="1" kind="5" name="NUMALatency" indexing="os">
  <indexes length="2">0 </indexes><u64values length="3">10 </u64values>
 </distances2>
 <distances2hetero nbobjs="3" kind="25" name="NVLinkBandwidth">
  <indexes length="19">OSDev:15 OSDev:33 </indexes><indexes length="10">PCIDev:36 </indexes>
  <u64values length="40">0 25000 300000 25000 </u64values><u64values length="24">0 300000 300000 300000 0 </u64values>
 </distances2hetero>
</topology>
"""

SLURM_TREE = """# two leaves below a spine
SwitchName=spine Switches=leaf[1-2]
SwitchName=leaf1 LinkSpeed=200 Nodes=tux[01-02],login
switchname = leaf2 Nodes="tux[03,05]" \\
  LinkSpeed=100
"""
SLURM_BLOCKS = """# block001=B1
BlockName=block001 Nodes=gb[1-2]
# block002=B2
BlockName=block002 Nodes=gb[3-4]
BlockName=spare
BlockSizes=2,4
"""
SLURM_YAML = """---
- topology: blocks
  block:
    block_sizes: [2]
    blocks:
      - block: b1
        nodes: node[1-2]
      - block: b2
        nodes: node3,node4
- topology: fabric
  cluster_default: true
  tree:
    switches:
      - switch: root
        children: s[1-2]
      - switch: s1
        nodes: node[1-2]
      - switch: s2
        nodes: node[3-4]
- topology: flat
  flat: true
"""
TOPOGRAPH = """{"instances": [
 {"id": "i1", "network_layers": ["leaf-a", "spine"], "labels": {"accelerator.topograph.run/domain": "nvl1"}},
 {"id": "i2", "network_layers": ["leaf-a", "spine"], "labels": {"accelerator.topograph.run/domain": "nvl1"}},
 {"id": "i3", "network_layers": ["leaf-b", "spine"], "labels": {"accelerator.topograph.run/domain": "nvl2"}}
]}
"""
KUBERNETES = """{"apiVersion": "v1", "kind": "List", "items": [
 {"kind": "Node", "metadata": {"name": "n1", "labels": {"fabric.topograph.run/tier-0": "leaf-a", "fabric.topograph.run/tier-1": "spine"}}},
 {"kind": "Node", "metadata": {"name": "n2", "labels": {"fabric.topograph.run/tier-1": "spine", "fabric.topograph.run/tier-0": "leaf-b"}}},
 {"kind": "Node", "metadata": {"name": "control", "labels": {"kubernetes.io/hostname": "control"}}}
]}
"""
IBNETDISCOVER = """#
# Topology file: generated on Mon Sep  1 10:00:00 2025
#
vendid=0x2c9
switchguid=0xb8cef60300e5d2a0(b8cef60300e5d2a0)
Switch\t40 "S-b8cef60300e5d2a0"\t\t# "MF0;leaf-1:MQM8790/U1" enhanced port 0 lid 1 lmc 0
[1]\t"H-0c42a10300a1b2c4"[1](c42a10300a1b2c4) \t\t# "node01 mlx5_0" lid 5 4xHDR
[2]\t"H-0c42a10300a1b2c8"[1](c42a10300a1b2c8) \t\t# "node01 mlx5_1" lid 6 4xHDR
[3]\t"H-0c42a10300a1b2cc"[1](c42a10300a1b2cc) \t\t# "node02 mlx5_0" lid 7 4xEDR
[21]\t"S-b8cef60300e5d2b0"[1]\t\t# "MF0;spine-1:MQM8790/U1" lid 2 4xHDR
[22]\t"S-b8cef60300e5d2b0"[2]\t\t# "MF0;spine-1:MQM8790/U1" lid 2 4xHDR

switchguid=0xb8cef60300e5d2b0(b8cef60300e5d2b0)
Switch\t40 "S-b8cef60300e5d2b0"\t\t# "MF0;spine-1:MQM8790/U1" enhanced port 0 lid 2 lmc 0
[1]\t"S-b8cef60300e5d2a0"[21]\t\t# "MF0;leaf-1:MQM8790/U1" lid 1 4xHDR
[2]\t"S-b8cef60300e5d2a0"[22]\t\t# "MF0;leaf-1:MQM8790/U1" lid 1 4xHDR
[3]\t"H-0c42a10300a1b2d0"[1](c42a10300a1b2d0) \t\t# "node03 mlx5_0" lid 8
[41]\t"H-1c42a10300a1b2d0"[1](1c42a10300a1b2d0) \t\t# "Mellanox Technologies Aggregation Node" lid 9 4xHDR

caguid=0xc42a10300a1b2c4
Ca\t1 "H-0c42a10300a1b2c4"\t\t# "node01 mlx5_0"
[1](c42a10300a1b2c4) \t"S-b8cef60300e5d2a0"[1]\t\t# lid 5 lmc 0 "MF0;leaf-1:MQM8790/U1" lid 1 4xHDR
"""
IBLINKINFO = """CA: node02 HCA-1:
      0xec0d9a03003d62be      4    1[  ] ==( 4X      25.78125 Gbps Active/  LinkUp)==>       2   17[  ] "MF0;sw:MSB7700/U1" ( )
CA: node01 mlx5_0:
      0x248a070300928186      3    1[  ] ==( 4X      25.78125 Gbps Active/  LinkUp)==>       2   36[  ] "MF0;sw:MSB7700/U1" ( )
Switch: 0x506b4b0300820910 MF0;sw:MSB7700/U1:
           2    1[  ] ==(                Down/ Polling)==>             [  ] "" ( )
           2   17[  ] ==( 4X      25.78125 Gbps Active/  LinkUp)==>       4    1[  ] "node02 HCA-1" ( )
           2   35[  ] ==( 2X      10.0 Gbps (FDR10) Active/  LinkUp) (HOQ:5 VL_Stall:7)==>       9    1[  ] "node03 mlx5_0" ( )
           2   36[  ] ==( 4X      25.78125 Gbps Active/  LinkUp)==>       3    1[  ] "node01 mlx5_0" ( )
"""
IB_REPORT = """SW     4  1 0x0000000000200002 4x HDR - CA     5  1 0x0000000000100002 ( 'leaf-1' - 'node01 mlx5_0' )
SW     4  2 0x0000000000200002 4x HDR - CA    10  1 0x0000000000100006 ( 'leaf-1' - 'node02 mlx5_0' )
SW     4  3 0x0000000000200002 4x ???                                     'leaf-1'
CA     5  1 0x0000000000100002 4x HDR - SW     4  1 0x0000000000200002 ( 'node01 mlx5_0' - 'leaf-1' )
"""
_LINE = '0x0000000000200002 "     leaf-1"   4   {0}[  ] ==( 4X   53.125 Gbps Active/  LinkUp)==>  0x00000000001000{0}7   {1}   1[  ] "node0{0} mlx5_0" ( )\n'
IB_LINES = "".join(_LINE.format(i, 10 + i) for i in (1, 2, 3))

SAMPLES = {
    "pairs.csv": PAIRS, "capped.csv": CAPPED, "matrix.tsv": MATRIX, "fabric.xml": NCCL_FABRIC, "lstopo.xml": HWLOC,
    "topology.conf": SLURM_TREE, "blocks.conf": SLURM_BLOCKS, "topology.yaml": SLURM_YAML, "graph.json": TOPOGRAPH,
    "nodes.json": KUBERNETES, "ibnet.txt": IBNETDISCOVER, "iblink.txt": IBLINKINFO, "lines.txt": IB_LINES, "report.txt": IB_REPORT,
}  # fmt: skip
