package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"flightline/shared/client"
)

func systemCommand(sh *shell) *cobra.Command {
	var stream string
	c := &cobra.Command{
		Use: "system", Short: "Print how the installation is: storage, streams, consumers, processes",
		Long: "Print how the installation is: what the doctor finds at once, the storage, the\n" +
			"streams and their consumers with what they have before them, and the processes.\n" +
			"Of the queues, the 20 with the most messages are listed. The key needs the scope\n" +
			"control; 'flightline doctor' looks at more, with a user of NATS.",
		Example: "  flightline system\n  flightline system --stream JOBS_echo -o json",
		RunE: runAndShow(sh, func(ctx context.Context, c *client.Client, _ []string) (*client.System, error) {
			return c.System(ctx, stream)
		}, systemRows),
	}
	c.Flags().StringVar(&stream, "stream", "", "list only the streams with this `text` in their name")
	return c
}

func systemRows(s *client.System) [][]string {
	rows := [][]string{{"KIND", "NAME", "STATE", "DETAIL"}}
	add := func(kind, name, state, detail string) {
		rows = append(rows, []string{kind, clean(name), known(clean(state), state != ""), clean(detail)})
	}
	for _, f := range s.Findings {
		add("finding", f.Check, f.State, f.Text)
		if f.Hint != "" {
			add("", "", "", f.Hint)
		}
	}
	st := s.Storage
	detail := fmt.Sprintf("%d bytes used", st.UsedBytes)
	if st.LimitBytes > 0 {
		detail += fmt.Sprintf(" of %d", st.LimitBytes)
	}
	if st.DiskBytes > 0 {
		detail += fmt.Sprintf("; disk: %d of %d bytes free", st.DiskFreeBytes, st.DiskBytes)
	}
	add("storage", "JetStream", "", detail)
	add("streams", fmt.Sprintf("%d of %d listed", len(s.Streams.List), s.Streams.Count), "", fmt.Sprintf("%d messages, %d bytes", s.Streams.Messages, s.Streams.Bytes))
	for _, x := range s.Streams.List {
		add("stream", x.Name, "", fmt.Sprintf("%d messages, %d bytes", x.Messages, x.Bytes))
	}
	for _, x := range s.Consumers.List {
		state := ""
		if x.Paused {
			state = "paused"
		}
		add("consumer", x.Stream+" "+x.Name, state, fmt.Sprintf("%d pending, %d handed out, %d redelivered", x.Pending, x.AckPending, x.Redelivered))
	}
	for _, p := range s.Processes {
		add("process", p.Role+" "+p.ID, p.Version, p.Hostname)
	}
	return rows
}
