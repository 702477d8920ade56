package console

import "strings"

// screen is a page.
type screen struct {
	// path is beneath Root; a part ":name" is a parameter.
	path  string
	title string
	// nav is the entry of the navigation that it belongs to, tab that of the endpoint.
	nav, tab string
	// template is what the page is made with, fragments are templates of it that may change
	// while the page is open. Each makes the one element whose id is its name.
	template  string
	fragments []string
	// listsJobs says that each load takes one of the few lists of jobs that an endpoint
	// answers in 10 s.
	listsJobs bool
	// load returns what the page shows.
	load func(*visit) (any, error)
}

// action is something that a form does. It returns the path, or full address beneath Root,
// of the page that comes next.
type action struct {
	path string
	do   func(*visit) (next string, err error)
}

// screens is the table of all pages. The first one whose path matches is taken.
func screens() []screen {
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
		{path: "/", title: "Overview", nav: "overview", template: "overview", fragments: []string{"overview-totals", "overview-attention", "overview-gpus", "overview-endpoints"}, load: loadOverview},
		{path: "/e/:endpoint", title: "Endpoint", tab: "endpoint", template: "endpoint", fragments: []string{"endpoint-now", "endpoint-charts", "endpoint-settings"}, load: loadEndpoint},
		{path: "/e/:endpoint/settings", title: "Settings", tab: "endpoint", template: "settings", load: loadSettings},
		{path: "/e/:endpoint/purge", title: "Purge", tab: "endpoint", template: "purge", fragments: []string{"purge-count"}, load: loadPurge},
		{path: "/e/:endpoint/jobs", title: "Jobs", tab: "jobs", template: "jobs", fragments: []string{"jobs-table"}, listsJobs: true, load: loadJobs},
		{
			path: "/e/:endpoint/jobs/:id", title: "Job", tab: "jobs", template: "job",
			fragments: []string{"job-head", "job-timeline", "job-output", "job-events", "job-deliveries"}, load: loadJob,
		},
		{path: "/e/:endpoint/jobs/:id/output", title: "Output", tab: "jobs", template: "output", load: loadOutput},
		{path: "/e/:endpoint/jobs/:id/input", title: "Input", tab: "jobs", template: "input", load: loadInput},
		{path: "/e/:endpoint/jobs/:id/log", title: "Log", tab: "jobs", template: "job-log", fragments: []string{"job-lines"}, load: loadJobLog},
		{path: "/e/:endpoint/try", title: "Try it", tab: "try", template: "try", fragments: []string{"try-job"}, load: loadTry},
		{path: "/e/:endpoint/many", title: "Many jobs", tab: "jobs", template: "many", load: loadMany},
		{path: "/e/:endpoint/batches/:id", title: "Progress", tab: "jobs", template: "batch", fragments: []string{"batch-progress"}, load: loadBatch},
		{path: "/j/:id", title: "Job", template: "jobs", load: findJob},
	}
}

// actions is the table of what forms do.
func actions() []action {
	return []action{
		{"/workers/:worker/drain", drainWorker},
		{"/machines/:machine/gpus/:gpu/quarantine", quarantineGPU},
		{"/machines/:machine/gpus/:gpu/restore", restoreGPU},
		{"/system/keys", createKey},
		{"/system/keys/:id/revoke", revokeKey},
		{"/e/:endpoint/webhooks/replay", replayWebhook},
		{"/e/:endpoint/webhooks/pause", pauseDestination},
		{"/e/:endpoint/webhooks/resume", resumeDestination},
		{"/e/:endpoint/webhooks/secret", rotateSecret},
		{"/e/:endpoint/pause", pauseEndpoint},
		{"/e/:endpoint/resume", resumeEndpoint},
		{"/e/:endpoint/purge", purgeEndpoint},
		{"/e/:endpoint/settings", changeSettings},
		{"/e/:endpoint/many", doMany},
		{"/e/:endpoint/batches/:id/continue", continueBatch},
		{"/e/:endpoint/try", tryJob},
		{"/e/:endpoint/jobs/:id/cancel", doJob("cancel")},
		{"/e/:endpoint/jobs/:id/retry", doJob("retry")},
	}
}

// match compares a path with a pattern and returns the parameters.
func match(pattern, path string) (map[string]string, bool) {
	want, got := strings.Split(pattern, "/"), strings.Split(path, "/")
	if len(want) != len(got) {
		return nil, false
	}
	params := map[string]string{}
	for i, part := range want {
		name, variable := strings.CutPrefix(part, ":")
		switch {
		case variable && got[i] != "":
			params[name] = got[i]
		case part != got[i]:
			return nil, false
		}
	}
	return params, true
}

// screenAt is the screen of a path beneath Root.
func (s *Service) screenAt(path string) (*screen, map[string]string) {
	for i := range s.screens {
		if params, ok := match(s.screens[i].path, path); ok {
			return &s.screens[i], params
		}
	}
	return nil, nil
}

func (s *Service) actionAt(path string) (*action, map[string]string) {
	for i := range s.actions {
		if params, ok := match(s.actions[i].path, path); ok {
			return &s.actions[i], params
		}
	}
	return nil, nil
}

// entry is a link of the navigation.
type entry struct{ Nav, Title, Path string }

// navigation are the pages beside the overview, tabs those of an endpoint.
func navigation() []entry {
	return []entry{
		{"failures", "Failures", "/failures"},
		{"workers", "Workers", "/workers"},
		{"machines", "Machines", "/machines"},
		{"events", "Events", "/events"},
		{"system", "System", "/system"},
	}
}

func tabs() []entry {
	return []entry{
		{"endpoint", "Overview", ""}, {"jobs", "Jobs", "/jobs"}, {"try", "Try it", "/try"}, {"scaling", "Scaling", "/scaling"}, {"webhooks", "Webhooks", "/webhooks"},
	}
}
