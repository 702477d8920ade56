package console

import (
	"slices"
	"time"

	"flightline/shared/client"
)

// eventsPast is how old the events may be that are there when a tail begins.
const eventsPast = 10 * time.Minute

// eventTypes are the types that the filter offers.
var eventTypes = []string{"job.queued", "job.started", "job.completed", "job.failed", "job.cancelled", "job.timed_out"}

type eventsData struct {
	Endpoint, Type, Job string
	Types               []string
	Events              []client.Event // the newest first
	Filtered            bool
}

func loadEvents(v *visit) (any, error) {
	d := &eventsData{Endpoint: v.query.Get("endpoint"), Type: v.query.Get("type"), Job: v.query.Get("job"), Types: eventTypes}
	if !slices.Contains(eventTypes, d.Type) {
		d.Type = ""
	}
	o := client.EventsOptions{Since: time.Now().Add(-eventsPast)}
	if d.Type != "" {
		o.Types = []string{d.Type}
	}
	list, err := lastOfTail(v, v.s.events, tailID{v.apiKey, d.Endpoint, d.Type}, v.api.Events(d.Endpoint, o).All)
	if err != nil {
		return nil, err
	}
	slices.Reverse(list)
	for _, e := range list {
		if d.Job == "" || string(e.Job) == d.Job {
			d.Events = append(d.Events, e)
		}
	}
	d.Filtered = d.Endpoint != "" || d.Type != "" || d.Job != ""
	v.follow(d.Endpoint)
	return d, nil
}
