"""Optical circuit switches of a fabric: who drives them, when they turn, and what to do without a port that failed.

driver     the interface: connect, disconnect, status
sonic      a switch that runs SONiC, over gNMI (tables: sonic_tables)
simulated  the switch that ``stretto run`` has, and programs that turn a vendor's
fabric     the switches of a network, from a configuration; turns planes for :mod:`stretto.runtime.circuits`
failing    the network without a port that failed, for which a new plan is made
"""
