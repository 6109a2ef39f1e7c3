"""What Prometheus and Grafana get: where to scrape, rules, alerts and the dashboard."""
