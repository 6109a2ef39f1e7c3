"""The dashboard's row on releases: which state, how much traffic, what each check says."""

from cluster.monitoring.panels import Row, panel, query

RELEASE = Row(
    title="Release: a candidate beside the stable version",
    panels=(
        panel(
            "State",
            "short",
            "The state that is at 1 holds; the last one stays after a release has ended.",
            query("max by (state) (ray_textlane_release_state) == 1", "{{state}}"),
        ),
        panel(
            "Weight of the candidate",
            "percentunit",
            "Share of the keys that the candidate answers; 0 without a release.",
            query("max(ray_textlane_release_weight)", "weight"),
        ),
        panel(
            "Checks",
            "short",
            "1 pass, 0 inconclusive, -1 fail. Inconclusive for long: too little traffic for the "
            "plan's thresholds.",
            query(
                "min by (check) (ray_textlane_release_check)",
                "{{check}}",
                needs="a release",
            ),
        ),
    ),
)
