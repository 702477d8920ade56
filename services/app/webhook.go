package app

import (
	"fmt"
	"net/netip"
	"time"

	"flightline/services/cli"
	"flightline/services/webhook"
	"flightline/shared/netguard"
	"flightline/shared/process"
)

// Webhooks are the settings of `flightline serve webhook`.
type Webhooks struct {
	WebhookAllowHTTP     bool          `flag:"webhook-allow-http" env:"FLIGHTLINE_WEBHOOK_ALLOW_HTTP" help:"let webhooks go to http addresses too, not https ones only"`
	WebhookAllowNetworks string        `flag:"webhook-allow-networks" env:"FLIGHTLINE_WEBHOOK_ALLOW_NETWORKS" help:"networks that webhooks may go to besides public addresses, like 10.1.0.0/16,fd00:1::/32"`
	WebhookTimeout       time.Duration `flag:"webhook-timeout" env:"FLIGHTLINE_WEBHOOK_TIMEOUT" default:"15s" help:"how long a receiver may take to answer (more than 0s, at most 20s)"`
	WebhookMaxBody       int           `flag:"webhook-max-body" env:"FLIGHTLINE_WEBHOOK_MAX_BODY" default:"10485760" help:"largest body of a webhook in bytes, 1 or more; a larger one has a link instead of the output"`
	WebhookPublicURL     string        `flag:"webhook-public-url" env:"FLIGHTLINE_WEBHOOK_PUBLIC_URL" help:"http or https address of this API, with which those links begin"`
}

// config is what the service makes of the settings.
func (w Webhooks) config() (webhook.Config, error) {
	cfg := webhook.Config{AllowHTTP: w.WebhookAllowHTTP, Timeout: w.WebhookTimeout, MaxBody: w.WebhookMaxBody, PublicURL: w.WebhookPublicURL}
	var err error
	if cfg.AllowNetworks, err = netguard.ParseNetworks(w.WebhookAllowNetworks); err != nil {
		return cfg, &cli.UsageError{Err: fmt.Errorf("--webhook-allow-networks %w", err)}
	}
	return cfg, nil
}

// loopbackWebhooks lets webhooks go to receivers on this machine.
func loopbackWebhooks(publicURL string) webhook.Config {
	return webhook.Config{
		AllowHTTP: true, PublicURL: publicURL,
		AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")},
	}
}

// addWebhooks adds the service that delivers webhooks.
func (n *node) addWebhooks(p plan) error {
	cfg := p.webhooks
	cfg.Log, cfg.Tracer = p.log, p.tracer
	cfg.DeliveriesMaxBytes, cfg.UndeliveredMaxBytes = p.logs.DeliveriesMaxBytes, p.logs.UndeliveredMaxBytes
	cfg.OnAttempt = p.metrics.Tried
	s, err := webhook.New(cfg, webhook.Deps{Queue: n.queue, Registry: n.registry})
	if err != nil {
		return &cli.UsageError{Err: err}
	}
	n.parts = append(n.parts, process.Part{Name: roleWebhook, Run: s.Run, Waiting: func() string { return "deliveries under way" }})
	return nil
}
