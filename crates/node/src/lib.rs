//! What a kubelet's port answers, for a node that is part of this process: logs, exec, attach, port-forward, statistics.
