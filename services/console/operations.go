package console

// operations are the screens about what runs the jobs and what became of them.
func operations() []screen {
	return []screen{
		{path: "/failures", title: "Failures", nav: "failures", template: "failures", fragments: []string{"failures-groups"}, load: loadFailures},
		{path: "/failures/redrive", title: "Redrive", nav: "failures", template: "redrive", load: loadRedrive},
		{path: "/workers", title: "Workers", nav: "workers", template: "workers", fragments: []string{"workers-table"}, load: loadWorkers},
		{path: "/workers/:worker", title: "Worker", nav: "workers", template: "worker", fragments: []string{"worker-state", "worker-log", "worker-jobs"}, load: loadWorker},
		{path: "/machines", title: "Machines", nav: "machines", template: "machines", fragments: []string{"machines-map", "machines-waiting"}, load: loadMachines},
		{path: "/events", title: "Events", nav: "events", template: "events", fragments: []string{"events-tail"}, load: loadEvents},
		{
			path: "/system", title: "System", nav: "system", template: "system",
			fragments: []string{"system-findings", "system-storage", "system-streams", "system-consumers", "system-processes", "system-keys"}, load: loadSystem,
		},
		{path: "/system/keys/:id/revoke", title: "Revoke a key", nav: "system", template: "key-revoke", load: loadRevoke},
		{path: "/e/:endpoint/scaling", title: "Scaling", tab: "scaling", template: "scaling", fragments: []string{"scaling-decisions"}, load: loadScaling},
		{path: "/e/:endpoint/webhooks", title: "Webhooks", tab: "webhooks", template: "webhooks", fragments: []string{"webhooks-destinations", "webhooks-deliveries"}, load: loadWebhooks},
		{path: "/e/:endpoint/webhooks/secret", title: "Rotate the secret", tab: "webhooks", template: "webhook-secret", load: loadSecret},
	}
}

// operationActions are what their forms do.
func operationActions() []action {
	return []action{
		{path: "/workers/:worker/drain", do: drainWorker},
		{path: "/machines/:machine/gpus/:gpu/quarantine", do: quarantineGPU},
		{path: "/machines/:machine/gpus/:gpu/restore", do: restoreGPU},
		{path: "/system/keys", do: createKey},
		{path: "/system/keys/:id/revoke", do: revokeKey},
		{path: "/e/:endpoint/webhooks/replay", do: replayWebhook},
		{path: "/e/:endpoint/webhooks/pause", do: pauseDestination},
		{path: "/e/:endpoint/webhooks/resume", do: resumeDestination},
		{path: "/e/:endpoint/webhooks/secret", do: rotateSecret},
	}
}

// choice is one of the values that a filter takes.
type choice struct{ Value, Title string }
