"""What a policy contributes to the exporter: metrics and a section of the status page, and the snapshot they show."""
