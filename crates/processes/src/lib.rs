//! A runtime whose containers are child processes, kept by a process of their own: it outlives the agent.
