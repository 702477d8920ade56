package metrics

// Kind is what Prometheus calls the type of a metric.
type Kind string

// The kinds.
const (
	Counter   Kind = "counter"
	Gauge     Kind = "gauge"
	Histogram Kind = "histogram"
)

// Name describes one metric.
type Name struct {
	// Name begins with "flightline_".
	Name string
	Kind Kind
	// Labels are in the order of their values.
	Labels []string
	// Role is the role whose processes expose it, "" if all do.
	Role string
	Help string
}

// namespace begins each name.
const namespace = "flightline_"

const (
	byEndpoint = "endpoint"
	api        = "api"
	recorder   = "recorder"
)

var (
	submitted         = Name{namespace + "jobs_submitted_total", Counter, []string{byEndpoint, "mode"}, api, "Jobs that this process accepted."}
	stale             = Name{namespace + "stale_results_total", Counter, []string{byEndpoint}, "gateway", "Results that were dropped because their worker no longer held the job."}
	finished          = Name{namespace + "jobs_finished_total", Counter, []string{byEndpoint, "status"}, recorder, "Attempts that ended, by the status they ended with."}
	delay             = Name{namespace + "queue_delay_seconds", Histogram, []string{byEndpoint}, recorder, "Time from when an attempt was queued to its first pick-up."}
	execution         = Name{namespace + "execution_seconds", Histogram, []string{byEndpoint}, recorder, "Time from the last pick-up of an attempt to its end, unless it was cancelled."}
	redeliveries      = Name{namespace + "redeliveries_total", Counter, []string{byEndpoint}, recorder, "Pick-ups of an attempt after its first: its worker was lost, or gave it back."}
	lag               = Name{namespace + "recorder_lag_seconds", Gauge, nil, recorder, "How long ago the oldest write of a record was that is not recorded yet, 0 if nothing waits; absent where the recorder stands by."}
	behind            = Name{namespace + "recorder_lag_writes", Gauge, nil, recorder, "Writes to the streams of records since the last one recorded, those of timers included; absent where the recorder stands by."}
	webhookDeliveries = Name{namespace + "webhook_deliveries_total", Counter, []string{"result"}, "webhook", "Attempts to deliver a webhook: delivered, failed (another follows), given_up."}

	depth       = Name{namespace + "queue_depth", Gauge, []string{byEndpoint, "class"}, api, "Jobs that are IN_QUEUE, by priority class."}
	running     = Name{namespace + "jobs_in_progress", Gauge, []string{byEndpoint}, api, "Jobs that are IN_PROGRESS."}
	lost        = Name{namespace + "jobs_worker_lost", Gauge, []string{byEndpoint}, api, "Jobs that are IN_PROGRESS and whose worker fell silent, or does not name them."}
	oldest      = Name{namespace + "queue_oldest_waiting_seconds", Gauge, []string{byEndpoint}, api, "How long the first waiting job of normal priority has waited, 0 if none waits."}
	workers     = Name{namespace + "workers", Gauge, []string{byEndpoint, "state"}, api, "Workers that send heartbeats, by state."}
	wanted      = Name{namespace + "workers_wanted", Gauge, []string{byEndpoint}, api, "Workers that the autoscaler wants; absent where it has not decided."}
	paused      = Name{namespace + "endpoint_paused", Gauge, []string{byEndpoint}, api, "1 while the endpoint hands out no jobs, else 0."}
	quarantined = Name{namespace + "gpus_quarantined", Gauge, []string{"state"}, api, "GPUs that no pod gets (quarantined), or one at a time as a trial (probation): an alarm."}
	leftOut     = Name{namespace + "endpoints_left_out", Gauge, nil, api, "Endpoints beyond the first 1000, which have no series of their own."}
	unread      = Name{namespace + "collect_failures_total", Counter, nil, api, "Times that an endpoint's gauges could not be read."}

	requests       = Name{namespace + "http_requests_total", Counter, []string{"route", "method", "code"}, "", "HTTP requests that were answered."}
	requestSeconds = Name{namespace + "http_request_duration_seconds", Histogram, []string{"route", "method", "code"}, "", "Time to the beginning of the answer, with the time it was held on purpose."}
	unanswered     = Name{namespace + "jetstream_errors_total", Counter, nil, "", "Requests that JetStream did not answer."}
	missingStreams = Name{namespace + "streams_missing", Gauge, nil, "", "Streams that this process found missing or unreadable in the last two minutes: an alarm."}
	reconnects     = Name{namespace + "nats_reconnects_total", Counter, nil, "", "Times that the connection to NATS was made again."}
	connected      = Name{namespace + "nats_connected", Gauge, nil, "", "1 while there is a connection to NATS, else 0."}
	refused        = Name{namespace + "streams_refusing_writes", Gauge, nil, "", "Streams to which NATS refuses all writes since one failed, as far as this process knows: restart NATS once its disk takes writes."}
)

// Names lists all metrics of Flightline's own.
func Names() []Name {
	return []Name{
		submitted, finished, depth, running, lost, oldest, delay, execution, workers, wanted, paused, redeliveries, stale,
		lag, behind, webhookDeliveries, requests, requestSeconds, unanswered, missingStreams, reconnects, connected, refused, leftOut, unread, quarantined,
	}
}
