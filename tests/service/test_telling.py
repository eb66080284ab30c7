"""Ports that failed are taken out of a controller's network."""

from __future__ import annotations

import stretto as st
from stretto.service.client import ControllerRefused
from stretto.service.optical.driver import End, PortFailed
from stretto.service.optical.telling import tell_controller
from stretto.topologies.files import topology_from_json


class Network:
    """Answers as a controller whose network telemetry has changed, and another plane's failure changes again."""

    def __init__(self, given):
        slow = given.to_json()
        slow["links"][0]["bandwidth_Bps"] /= 4
        self.versions, self.others = {1: given.to_json(), 2: slow}, 1

    def network(self, name, version=None):
        newest = max(self.versions)
        return {"version": newest, "base": 1, "topology": self.versions[version or newest]}

    def put_network(self, name, topology, expected=None):
        if self.others:
            self.others -= 1
            self.versions[3] = self.versions[2]
        if expected != max(self.versions):
            raise ControllerRefused(409, {"code": "conflict"})
        self.versions[expected + 1] = topology
        return {"version": expected + 1}


def test_a_port_that_fails_is_taken_out_of_what_the_operator_gave():
    fabric = st.topology("optical:4,2")
    links = [{"src": 0, "dst": 1, "bandwidth_Bps": 1e9, "latency_s": 1e-6}]
    given = topology_from_json(fabric.to_json() | {"links": links}, "fabric")
    network = Network(given)
    assert tell_controller(network, "fabric", given, PortFailed(0, [End(2, "A")], ["3A"])) == 4
    left = topology_from_json(network.versions[4], "fabric")
    assert left.bandwidth.tolist() == [1e9] and left.planes[0].nodes.tolist() == [0, 1, 3]
