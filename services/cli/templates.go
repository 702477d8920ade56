package cli

import (
	"context"

	"github.com/spf13/cobra"

	"flightline/shared/client"
)

func (sh *shell) templateCommand() *cobra.Command {
	c := &cobra.Command{Use: "template", Short: "Make, show, change and remove templates", Args: cobra.NoArgs, RunE: needsVerb}
	c.AddCommand(sh.createTemplate(), sh.updateTemplate(), sh.getTemplate(), sh.listTemplates(),
		sh.deleteThing("Remove a template that nothing uses", func(ctx context.Context, api *client.Client, id string) error {
			return api.Templates().Delete(ctx, id)
		}))
	return c
}

// templateFlags are what templates are made from.
type templateFlags struct {
	specFlags
	template   client.TemplateSpec
	serverless bool
}

// command gives c the flags, and sends what they say.
func (s *templateFlags) command(sh *shell, c *cobra.Command, send func(context.Context, client.Templates, []string, client.TemplateSpec) (*client.Template, error)) *cobra.Command {
	f := c.Flags()
	s.add(f)
	f.StringVar(&s.template.Category, "category", "", "NVIDIA, AMD or CPU")
	f.StringVar(&s.template.Readme, "readme", "", "`text` for people")
	f.BoolVar(&s.serverless, "serverless", false, "it is for endpoints")
	c.RunE = sh.with(func(ctx context.Context, api *client.Client, args []string) error {
		spec, err := s.given()
		if err != nil {
			return err
		}
		s.template.Spec, s.template.Serverless = spec, typed(f, "serverless", &s.serverless)
		t, err := send(ctx, api.Templates(), args, s.template)
		if err != nil {
			return err
		}
		return sh.showTemplate(t)
	})
	return c
}

func (sh *shell) createTemplate() *cobra.Command {
	c := &cobra.Command{Use: "create", Short: "Make a template", Args: cobra.NoArgs}
	return new(templateFlags).command(sh, c, func(ctx context.Context, t client.Templates, _ []string, spec client.TemplateSpec) (*client.Template, error) {
		return t.Create(ctx, spec)
	})
}

func (sh *shell) updateTemplate() *cobra.Command {
	c := &cobra.Command{Use: "update ID", Short: "Change a template", Args: cobra.ExactArgs(1)}
	return new(templateFlags).command(sh, c, func(ctx context.Context, t client.Templates, args []string, spec client.TemplateSpec) (*client.Template, error) {
		return t.Update(ctx, args[0], spec)
	})
}

func (sh *shell) getTemplate() *cobra.Command {
	return &cobra.Command{
		Use: "get ID", Short: "Show a template; -o json has all of it", Args: cobra.ExactArgs(1),
		RunE: sh.with(func(ctx context.Context, api *client.Client, args []string) error {
			t, err := api.Templates().Get(ctx, args[0])
			if err != nil {
				return err
			}
			return sh.showTemplate(t)
		}),
	}
}

func (sh *shell) listTemplates() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the templates", Args: cobra.NoArgs,
		RunE: sh.with(func(ctx context.Context, api *client.Client, _ []string) error {
			list, err := api.Templates().List(ctx)
			if err != nil {
				return err
			}
			rows := [][]string{{"ID", "NAME", "IMAGE"}}
			for _, t := range list {
				rows = append(rows, []string{t.ID, clean(t.Name), clean(t.Image)})
			}
			return sh.show(list, rows)
		}),
	}
}

func (sh *shell) showTemplate(t *client.Template) error {
	return sh.show(t, [][]string{{"ID", t.ID}, {"NAME", clean(t.Name)}, {"IMAGE", clean(t.Image)}})
}

// deleteThing is the command that removes the thing of an id.
func (sh *shell) deleteThing(short string, remove func(context.Context, *client.Client, string) error) *cobra.Command {
	return &cobra.Command{
		Use: "delete ID", Short: short, Args: cobra.ExactArgs(1),
		RunE: sh.with(func(ctx context.Context, api *client.Client, args []string) error {
			if err := remove(ctx, api, args[0]); err != nil {
				return err
			}
			return sh.show(map[string]string{"deleted": args[0]}, [][]string{{"DELETED", args[0]}})
		}),
	}
}
