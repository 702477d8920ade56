package console

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"flightline/shared/client"
	"flightline/shared/job"
)

// webhooksPage is how many deliveries a page has.
const webhooksPage = 50

type webhooksData struct {
	Endpoint, Job string
	Failed        bool
	*client.WebhookDeliveries
	After        string
	Destinations []client.WebhookDestination
	Retries      []time.Duration
	Filtered     bool
}

func loadWebhooks(v *visit) (any, error) {
	d := &webhooksData{Endpoint: v.param("endpoint"), Job: v.query.Get("job"), Failed: v.query.Get("failed") == "true", After: v.query.Get("after")}
	if err := mayControl(v, "webhooks"); err != nil {
		return nil, err
	}
	webhooks := v.control.Webhooks(d.Endpoint)
	var err error
	if d.WebhookDeliveries, err = webhooks.Deliveries(v.ctx, client.WebhookQuery{Job: job.ID(d.Job), Failed: d.Failed, Cursor: d.After, Limit: webhooksPage}); err != nil {
		return nil, err
	}
	if d.Destinations, err = webhooks.Destinations(v.ctx); err != nil {
		return nil, err
	}
	e, err := v.control.Endpoints().Get(v.ctx, d.Endpoint)
	if err != nil {
		return nil, err
	}
	d.Retries, d.Filtered = e.WebhookRetries, d.Job != "" || d.Failed
	if e.WebhookRetries == nil {
		d.Retries = []time.Duration{10 * time.Second, 10 * time.Second} // the contract's
	}
	if v.May("read", d.Endpoint) {
		v.follow(d.Endpoint)
	}
	return d, nil
}

func mayControl(v *visit, what string) error {
	if v.May("control", "") {
		return nil
	}
	return &pageError{status: http.StatusForbidden, text: "This key may not see " + what + "; it needs the scope control."}
}

func webhooksPath(v *visit) string {
	return pathOf(v.param("endpoint")) + "/webhooks"
}

// replayWebhook sends the webhook of a job again, or all that were given up since an hour or
// a day.
func replayWebhook(v *visit) (string, error) {
	webhooks := v.control.Webhooks(v.param("endpoint"))
	if id := v.form.Get("job"); id != "" {
		if _, err := webhooks.Replay(v.ctx, job.ID(id)); err != nil {
			return "", err
		}
		v.notice("The webhook of job %s is sent again.", id)
		return webhooksPath(v) + "?" + url.Values{"job": {id}}.Encode(), nil
	}
	hours, err := strconv.Atoi(v.form.Get("hours"))
	if err != nil || hours < 1 || hours > 168 {
		return "", &pageError{status: http.StatusBadRequest, text: "hours must be between 1 and 168"}
	}
	n, err := webhooks.ReplaySince(v.ctx, time.Now().Add(-time.Duration(hours)*time.Hour))
	if err != nil {
		return "", err
	}
	v.notice("%s sent again.", plural(n, "webhook"))
	return webhooksPath(v), nil
}

func pauseDestination(v *visit) (string, error) {
	to := v.form.Get("destination")
	if _, err := v.control.Webhooks(v.param("endpoint")).Pause(v.ctx, to, v.form.Get("reason")); err != nil {
		return "", err
	}
	v.notice("Webhooks to %s are kept back.", to)
	return webhooksPath(v), nil
}

func resumeDestination(v *visit) (string, error) {
	to := v.form.Get("destination")
	n, err := v.control.Webhooks(v.param("endpoint")).Resume(v.ctx, to)
	if err != nil {
		return "", err
	}
	v.notice("Webhooks to %s go out again, and %s that had been kept back.", to, plural(n, "webhook"))
	return webhooksPath(v), nil
}

// secretData is the question before a rotation, and its answer.
type secretData struct {
	Endpoint string
	Made     *client.WebhookSecret
}

func loadSecret(v *visit) (any, error) {
	return &secretData{Endpoint: v.param("endpoint")}, mayControl(v, "webhooks")
}

func rotateSecret(v *visit) (string, error) {
	hours, err := strconv.Atoi(v.form.Get("hours"))
	if err != nil || hours < 0 || hours > 720 {
		return "", &pageError{status: http.StatusBadRequest, text: "hours must be between 0 and 720"}
	}
	d := &secretData{Endpoint: v.param("endpoint")}
	if d.Made, err = v.control.Webhooks(d.Endpoint).RotateSecret(v.ctx, time.Duration(hours)*time.Hour); err != nil {
		return "", err
	}
	if d.Made.Secret == "" {
		return "", errors.New("console: the API returned no secret")
	}
	v.shows(screen{title: "The new secret", tab: "webhooks", template: "webhook-secret"}, d)
	return "", nil
}
