"""The dashboard's rows on serving: all of it, each lane and version, each replica."""

from cluster.monitoring.panels import Row, panel, query

_PICKED = 'lane=~"$lane", version=~"$version"'
_CURVE = "{{lane}} {{version}}"


def _longest(share: float) -> str:
    buckets = f"rate(ray_textlane_batch_longest_tokens_bucket{{{_PICKED}}}[5m])"
    return f"histogram_quantile({share}, sum by (lane, version, le) ({buckets}))"


SERVICE = Row(
    title="Serving: what clients see",
    panels=(
        panel(
            "Requests by outcome",
            "reqps",
            "Predictions a second by `outcome`: ok, or the code of the error as in "
            "serve_app/README.md. client_gone: the client left before its answer.",
            query(
                f"sum by (outcome) (lane_version_outcome:textlane_requests:rate1m{{{_PICKED}}})",
                "{{outcome}}",
            ),
        ),
        panel(
            "Failed and refused",
            "percentunit",
            "Share of the predictions that end with 500, 503 or 504, or with 429. "
            "Alerts: both at 1 %.",
            query("textlane:failures:ratio5m", "failed"),
            query("textlane:shed:ratio5m", "refused with 429"),
        ),
        panel(
            "Latency of short and long texts",
            "s",
            "From a request's arrival at the ingress to its whole answer. The largest bucket ends "
            "at 1 s: what takes longer is drawn there. Alert: P99 of short texts over 0.25 s.",
            query(
                f"lane_version:textlane_request_latency_seconds:p50_5m{{{_PICKED}}}",
                f"P50 {_CURVE}",
            ),
            query(
                f"lane_version:textlane_request_latency_seconds:p99_5m{{{_PICKED}}}",
                f"P99 {_CURVE}",
            ),
        ),
        panel(
            "Cut texts",
            "percentunit",
            "Share of the texts whose end was cut off at max_seq_len. Alert: 5 %.",
            query("textlane:truncated:ratio5m", "cut"),
        ),
    ),
)

LANES = Row(
    title="Serving: lanes and versions",
    panels=(
        panel(
            "P99 by stage",
            "s",
            "Where the time goes: tokenise, queue (waiting on the model's replica), session (the "
            "model run). The rest of the whole is HTTP and the way to the replica.",
            query(
                f"lane_version_stage:textlane_stage_latency_seconds:p99_5m{{{_PICKED}}}",
                "{{stage}} {{lane}} {{version}}",
            ),
        ),
        panel(
            "Waiting texts",
            "short",
            "Texts that wait for their model run.",
            query(f"sum by (lane, version) (ray_textlane_queued_texts{{{_PICKED}}})", _CURVE),
        ),
        panel(
            "Oldest waiting text",
            "s",
            "How long the oldest waiting text has waited. Alert: 2 s.",
            query(f"max by (lane, version) (ray_textlane_queue_age_seconds{{{_PICKED}}})", _CURVE),
        ),
        panel(
            "Rows in one model run",
            "short",
            "Mean rows of a run. Under load it should grow; near 1 while texts wait, batches do "
            "not form.",
            query(f"lane_version:textlane_batch_rows:mean5m{{{_PICKED}}}", _CURVE),
        ),
        panel(
            "Padding",
            "percentunit",
            "Share of the computed tokens that are padding. Alert: 30 %.",
            query(f"lane_version:textlane_padding:ratio5m{{{_PICKED}}}", _CURVE),
        ),
        panel(
            "Longest text of a model run",
            "short",
            "Tokens that all rows of a run are padded to. P99 far over P50 in the short lane: "
            "short texts wait for long ones.",
            query(_longest(0.5), f"P50 {_CURVE}"),
            query(_longest(0.99), f"P99 {_CURVE}"),
        ),
        panel(
            "Tokens a second",
            "short",
            "Tokens of texts that the model ran, without padding.",
            query(
                f"sum by (lane, version) (rate(ray_textlane_real_tokens_total{{{_PICKED}}}[1m]))",
                _CURVE,
            ),
        ),
    ),
)

REPLICAS = Row(
    title="Serving: replicas",
    panels=(
        panel(
            "Busy share",
            "percentunit",
            "Share of the time in which a replica's model runs, and the lane's mean; 100 % is "
            "saturated. Alert: a lane's mean over 95 %.",
            query(
                "sum by (lane, replica) "
                f"(rate(ray_textlane_session_seconds_total{{{_PICKED}}}[1m]))",
                "{{lane}} {{replica}}",
            ),
            query('lane:textlane_session_busy:mean1m{lane=~"$lane"}', "mean of {{lane}}"),
        ),
        panel(
            "Settings at work",
            "short",
            "What replicas say they work with, tuning and user_config included; true is 1. Those "
            "of the ingress have the lane none.",
            query("max by (setting, lane) (ray_textlane_setting)", "{{setting}} {{lane}}"),
        ),
        panel(
            "Replicas: healthy and aimed at",
            "short",
            "Apart for long: replicas do not start, see `serve status`.",
            query(
                "sum by (application, deployment) (ray_serve_deployment_replica_healthy)",
                "{{deployment}} healthy",
            ),
            query(
                "max by (application, deployment) (ray_serve_autoscaling_target_replicas)",
                "{{deployment}} aimed at",
            ),
        ),
        panel(
            "State of deployments",
            "short",
            "6 healthy, 5 fewer replicas, 4 more replicas, 3 updating, 2 unhealthy, 1 did not "
            "deploy.",
            query(
                "max by (application, deployment) (ray_serve_deployment_status)", "{{deployment}}"
            ),
        ),
        panel(
            "Replicas started",
            "short",
            "Replicas that started in the last 10 minutes; a steady stream is a crash in a loop.",
            query(
                "sum by (application, deployment) "
                "(increase(ray_serve_deployment_replica_starts_total[10m]))",
                "{{deployment}}",
            ),
        ),
        panel(
            "HAProxy",
            "short",
            "Processes of the front door on each node; 0 is an outage there.",
            query("max by (NodeAddress) (ray_serve_haproxy_process_count)", "{{NodeAddress}}"),
        ),
        panel(
            "GPU of the lanes",
            "percentunit",
            "Share of the last moment in which the replica's GPU computed.",
            query(
                f"max by (lane, replica) (ray_textlane_gpu_utilisation_ratio{{{_PICKED}}})",
                "{{lane}} {{replica}}",
                needs="a GPU",
            ),
        ),
    ),
)
