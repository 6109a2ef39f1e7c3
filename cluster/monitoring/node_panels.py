"""The dashboard's row on the cluster's nodes."""

from cluster.monitoring.panels import Row, panel, query

NODES = Row(
    title="Nodes",
    panels=(
        panel(
            "Nodes",
            "short",
            "Nodes that the autoscaler counts: running, starting, lost.",
            query("sum by (NodeType) (autoscaler_active_nodes)", "running {{NodeType}}"),
            query("sum by (NodeType) (autoscaler_pending_nodes)", "starting {{NodeType}}"),
            query(
                "sum by (NodeType) (autoscaler_recently_failed_nodes)",
                "lost {{NodeType}}",
                needs="a lost node",
            ),
        ),
        panel(
            "CPU by node",
            "percent",
            "Over 90 % for long, model runs and the front door take time from each other.",
            query("max by (ip) (ray_node_cpu_utilization)", "{{ip}}"),
        ),
        panel(
            "CPUs asked for",
            "short",
            "CPUs that actors and tasks reserve, and those still free. None free and replicas "
            "missing: the cluster is too small.",
            query('sum by (State) (ray_resources{Name="CPU"})', "{{State}}"),
        ),
        panel(
            "Memory by node",
            "percentunit",
            "At 95 % Ray kills workers. Alert: 90 %.",
            query("max by (ip) (ray_node_mem_used / ray_node_mem_total)", "{{ip}}"),
        ),
        panel(
            "Memory by process",
            "bytes",
            "The ten largest, by what the process is.",
            query("topk(10, sum by (Component, ip) (ray_component_rss_bytes))", "{{Component}}"),
        ),
        panel(
            "Workers killed for memory",
            "short",
            "In 15 minutes. Alert: any.",
            query(
                "sum by (Name) (increase(ray_memory_manager_worker_eviction_total[15m]))",
                "{{Name}}",
                needs="a killed worker",
            ),
        ),
        panel(
            "Object store",
            "bytes",
            "Ray's shared memory; what does not fit is written to disk (SPILLED).",
            query("sum by (Location) (ray_object_store_memory)", "{{Location}}"),
        ),
        panel(
            "Disk",
            "percentunit",
            "Ray stores no more objects at 95 %. Alert: 90 %.",
            query(
                "max by (ip) (ray_node_disk_usage / (ray_node_disk_usage + ray_node_disk_free))",
                "{{ip}}",
            ),
        ),
        panel(
            "Network",
            "Bps",
            "What each node receives and sends.",
            query("max by (ip) (ray_node_network_receive_speed)", "{{ip}} received"),
            query("max by (ip) (ray_node_network_send_speed)", "{{ip}} sent"),
        ),
        panel(
            "GPUs",
            "percent",
            "Use of each GPU.",
            query(
                "max by (ip, GpuIndex) (ray_node_gpus_utilization)",
                "{{ip}} {{GpuIndex}}",
                needs="a GPU",
            ),
        ),
        panel(
            "GPU memory",
            "mbytes",
            "Used memory of each GPU.",
            query(
                "max by (ip, GpuIndex) (ray_node_gram_used)", "{{ip}} {{GpuIndex}}", needs="a GPU"
            ),
        ),
        panel(
            "Targets that answer",
            "short",
            "Ports of the cluster that Prometheus reads: one a node, and two of the head.",
            query('sum(up{job="ray"})', "answer"),
            query('count(up{job="ray"})', "known"),
        ),
    ),
)
