package api

import (
	"testing"
	"time"

	"flightline/shared/chunks"
	"flightline/shared/job"
)

func TestFormOfAStream(t *testing.T) {
	tests := map[string]struct {
		format, accept, setting, server, method, contentType, agent string
		want                                                        form // "": refused
	}{
		"nothing said":                  {want: formArray},
		"a browser":                     {accept: "text/html,*/*;q=0.8", agent: "Mozilla/5.0", want: formArray},
		"JSON wanted":                   {accept: "application/json", want: formArray},
		"a client that sends JSON":      {contentType: "application/json", want: formObject},
		"with a charset":                {contentType: "Application/JSON; charset=utf-8", want: formObject},
		"a form":                        {contentType: "application/x-www-form-urlencoded", want: formArray},
		"RunPod's client":               {agent: "RunPod-JS-SDK/1.1.2 (linux)", want: formObject},
		"somebody who names it":         {agent: "my-RunPod-client", want: formArray},
		"POST":                          {method: "POST", want: formObject},
		"events wanted":                 {accept: "text/event-stream", want: formEvents},
		"events among others":           {accept: "application/json, Text/Event-Stream;q=0.9", want: formEvents},
		"events, by a client of JSON":   {accept: "text/event-stream", contentType: "application/json", setting: "array", want: formEvents},
		"an endpoint's array":           {setting: "array", method: "POST", contentType: "application/json", agent: "RunPod-x", want: formArray},
		"an endpoint's object":          {setting: "object", want: formObject},
		"an endpoint that leaves it":    {setting: "auto", want: formArray},
		"the server's object":           {server: "object", want: formObject},
		"the server's array":            {server: "array", want: formArray},
		"a client before the server":    {server: "array", method: "POST", want: formObject},
		"an endpoint before the server": {setting: "array", server: "object", want: formArray},
		"an endpoint leaves it to it":   {setting: "auto", server: "object", want: formObject},
		"events, by that server":        {accept: "text/event-stream", server: "object", want: formEvents},
		"format before the server":      {format: "array", server: "object", want: formArray},
		"format before all: array":      {format: "array", accept: "text/event-stream", setting: "object", method: "POST", want: formArray},
		"format before all: object":     {format: "object", accept: "text/event-stream", setting: "array", want: formObject},
		"format before all: sse":        {format: "sse", setting: "array", want: formEvents},
		"a format that is none":         {format: "xml"},
		"a format that is nearly one":   {format: "SSE"},
		"a content type without a name": {contentType: ";", want: formArray},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := statedForm(test.format, test.accept)
			if err == nil && got == formAuto {
				got = impliedForm(test.setting, test.server, test.method, test.contentType, test.agent)
			}
			if got != test.want || (err != nil) != (test.want == "") {
				t.Errorf("got %q, %v, want %q", got, err, test.want)
			}
		})
	}
}

func TestBodyOfAStream(t *testing.T) {
	chunk := func(data string) chunks.Chunk { return chunks.Chunk{Data: []byte(data)} }
	two := []chunks.Chunk{chunk(`{"output":"<a>&"}`), chunk(`{"output":{"b":1},"metrics":{}}`)}
	const both = `[{"output":"<a>&"},{"output":{"b":1},"metrics":{}}]`
	failed := job.Job{Status: job.Failed, Error: "no \"way\"\n"}
	tests := map[string]struct {
		form   form
		chunks []chunks.Chunk
		job    job.Job
		more   bool
		want   string
	}{
		"array":                      {formArray, two, job.Job{Status: job.Completed}, false, both},
		"array, none":                {formArray, nil, failed, false, `[]`},
		"object, waiting":            {formObject, nil, job.Job{Status: job.InQueue}, false, `{"status":"IN_QUEUE","stream":[]}`},
		"object, running":            {formObject, two, job.Job{Status: job.InProgress, Error: "old"}, false, `{"status":"IN_PROGRESS","stream":` + both + `}`},
		"object, done":               {formObject, two, job.Job{Status: job.Completed}, false, `{"status":"COMPLETED","stream":` + both + `}`},
		"object, done, there's more": {formObject, two, job.Job{Status: job.Completed}, true, `{"status":"IN_PROGRESS","stream":` + both + `}`},
		"object, failed":             {formObject, nil, failed, false, `{"status":"FAILED","stream":[],"error":"no \"way\"\n"}`},
		"object, failed, more":       {formObject, two[:1], failed, true, `{"status":"IN_PROGRESS","stream":[{"output":"<a>&"}]}`},
		"object, timed out":          {formObject, nil, job.Job{Status: job.TimedOut, Error: "late"}, false, `{"status":"TIMED_OUT","stream":[],"error":"late"}`},
		"object, cancelled":          {formObject, nil, job.Job{Status: job.Cancelled}, false, `{"status":"CANCELLED","stream":[]}`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := string(streamBody(test.form, test.chunks, &test.job, test.more)); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestWhenACancelledStreamIsOver(t *testing.T) {
	now := time.Now()
	ago := func(d time.Duration, s job.Status) *job.Job { return &job.Job{Status: s, Finished: now.Add(-d)} }
	tests := map[string]struct {
		job  *job.Job
		want bool
	}{
		"cancelled just now":  {ago(29*time.Second, job.Cancelled), false},
		"cancelled a while":   {ago(30*time.Second, job.Cancelled), true},
		"completed a while":   {ago(time.Minute, job.Completed), false},
		"failed a while":      {ago(time.Minute, job.Failed), false},
		"still running":       {&job.Job{Status: job.InProgress}, false},
		"waiting for a while": {&job.Job{Status: job.InQueue}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := cancelledLongAgo(test.job, now); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}
