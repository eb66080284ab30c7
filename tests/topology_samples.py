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

SAMPLES = {
    "pairs.csv": PAIRS,
    "capped.csv": CAPPED,
    "matrix.tsv": MATRIX,
    "fabric.xml": NCCL_FABRIC,
    "lstopo.xml": HWLOC,
}
