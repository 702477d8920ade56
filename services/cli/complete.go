package cli

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"flightline/shared/client"
)

// completionTimeout bounds the question to the server: a person waits for the shell.
const completionTimeout = 2 * time.Second

// completeArguments has the shell complete the ids of arguments, of c and all
// commands below it.
func (sh *shell) completeArguments(c *cobra.Command) {
	for _, below := range c.Commands() {
		sh.completeArguments(below)
	}
	names := strings.Fields(c.Use)[1:]
	if len(names) == 0 || c.Name() == "create" { // the id of what is made is new
		return
	}
	c.ValidArgsFunction = func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) >= len(names) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(c.Context(), completionTimeout)
		defer cancel()
		ids, err := sh.idsOf(ctx, c.Parent().Name(), strings.Trim(names[len(args)], "[]"), args)
		switch {
		case errors.Is(err, errNoID):
			return nil, cobra.ShellCompDirectiveDefault
		case err != nil:
			cobra.CompErrorln(err.Error())
			return nil, cobra.ShellCompDirectiveError
		}
		return ids, cobra.ShellCompDirectiveNoFileComp
	}
}

// errNoID means that an argument is no id.
var errNoID = errors.New("the argument is no id")

// idsOf are the ids that an argument of this name may be, after those before it. An
// ID is one of the noun, as endpoint or pod.
func (sh *shell) idsOf(ctx context.Context, noun, name string, before []string) ([]string, error) {
	c, err := sh.connect()
	if err != nil {
		return nil, err
	}
	switch {
	case name == "ENDPOINT", name == "ID" && noun == "endpoint":
		return ids(c.Endpoints().List(ctx))(func(e client.Endpoint) string { return e.ID })
	case name == "JOB" && len(before) > 0:
		page, err := c.Requests(ctx, before[0], client.RequestsOptions{Limit: 100})
		if err != nil {
			return nil, err
		}
		return ids(page.Requests, nil)(func(j client.ListedJob) string { return string(j.ID) })
	case name == "WORKER":
		return ids(c.Workers().List(ctx, before[0]))(func(w client.Worker) string { return w.ID })
	case name != "ID":
		return nil, errNoID
	case noun == "pod":
		return ids(c.Pods().List(ctx, nil))(func(p client.Pod) string { return p.ID })
	case noun == "template":
		return ids(c.Templates().List(ctx))(func(t client.Template) string { return t.ID })
	case noun == "volume":
		return ids(c.Volumes().List(ctx))(func(v client.Volume) string { return v.ID })
	case noun == "key":
		return ids(c.Keys().List(ctx))(func(k client.Key) string { return k.ID })
	}
	return nil, errNoID
}

// ids takes what a list answered.
func ids[T any](list []T, err error) func(id func(T) string) ([]string, error) {
	return func(id func(T) string) ([]string, error) {
		found := make([]string, 0, len(list))
		for _, one := range list {
			found = append(found, clean(id(one)))
		}
		return found, err
	}
}
