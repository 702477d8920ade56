package api

import (
	"bytes"
	"encoding/json"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/events"
	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/shared/registry"
	"flightline/shared/web"
)

// briefView answers run, cancel and retry.
type briefView struct {
	ID     job.ID     `json:"id"`
	Status job.Status `json:"status"`
}

func briefOf(j *job.Job) briefView { return briefView{ID: j.ID, Status: j.Status} }

// jobView answers runsync, status and status-sync. Times are milliseconds.
type jobView struct {
	// DelayTime is there once the job was picked up, or is over.
	DelayTime *int64 `json:"delayTime,omitempty"`
	// Error is there only when the job is over: clients stop waiting at it.
	Error string `json:"error,omitempty"`
	// ExecutionTime is there once the job is over.
	ExecutionTime *int64 `json:"executionTime,omitempty"`
	ID            job.ID `json:"id"`
	// Output is the result, or while IN_PROGRESS the last progress.
	Output   json.RawMessage `json:"output,omitempty"`
	Retries  int             `json:"retries,omitempty"`
	Status   job.Status      `json:"status"`
	WorkerID string          `json:"workerId,omitempty"`
}

func viewOf(j *job.Job) jobView {
	v := jobView{ID: j.ID, Status: j.Status, Retries: j.Retries()}
	if j.Status == job.InQueue {
		return v // what an earlier run left behind is no news
	}
	delay := j.Delay().Milliseconds()
	v.DelayTime, v.Output, v.WorkerID = &delay, j.Output, j.Worker
	if j.Status.Terminal() {
		execution := j.Execution(j.Finished).Milliseconds()
		v.ExecutionTime, v.Error = &execution, j.Error
	}
	return v
}

// sendJob answers with the job. A large output is copied as it is stored, which is
// compact JSON: json.Marshal would parse it, and copy it three times.
func sendJob(c *fiber.Ctx, j *job.Job) error {
	v := viewOf(j)
	if len(v.Output) <= web.SmallBody {
		return c.JSON(v)
	}
	const stand = `"output":0` // quotes in values are escaped
	output := v.Output
	v.Output = json.RawMessage("0")
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	before, after, _ := bytes.Cut(text, []byte(stand))
	body := make([]byte, 0, len(text)+len(output))
	body = append(append(body, before...), stand[:len(stand)-1]...)
	body = append(append(body, output...), after...)
	c.Context().SetContentType(fiber.MIMEApplicationJSON)
	c.Response().SetBodyRaw(body)
	return nil
}

type purgeView struct {
	Removed int    `json:"removed"`
	Status  string `json:"status"`
}

// healthView is what RunPod's service answers; clients insist on every number.
type healthView struct {
	Jobs    jobCounts    `json:"jobs"`
	Workers workerCounts `json:"workers"`
}

type jobCounts struct {
	Completed  int64 `json:"completed"`
	Failed     int64 `json:"failed"`
	InProgress int   `json:"inProgress"`
	InQueue    int   `json:"inQueue"`
	Retried    int64 `json:"retried"`
}

// workerCounts: ready workers are those that are up and free, like idle ones.
type workerCounts struct {
	Idle         int `json:"idle"`
	Initializing int `json:"initializing"`
	Ready        int `json:"ready"`
	Running      int `json:"running"`
	Throttled    int `json:"throttled"`
	Unhealthy    int `json:"unhealthy"`
}

func healthOf(s queue.Stats, t events.Totals, workers map[string]int) healthView {
	return healthView{
		Jobs: jobCounts{
			Completed: t.Completed, Failed: t.Failed + t.TimedOut, Retried: t.Retried,
			InProgress: s.Running, InQueue: s.Queued,
		},
		Workers: workersOf(workers),
	}
}

func workersOf(workers map[string]int) workerCounts {
	return workerCounts{
		Idle: workers[registry.WorkerIdle], Initializing: workers[registry.WorkerInitializing],
		Ready: workers[registry.WorkerIdle], Running: workers[registry.WorkerRunning],
		Throttled: workers[registry.WorkerThrottled], Unhealthy: workers[registry.WorkerUnhealthy],
	}
}
