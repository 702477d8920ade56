package cli

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"flightline/shared/client"
)

func (sh *shell) keyCommand() *cobra.Command {
	c := &cobra.Command{Use: "key", Short: "Make, list and revoke API keys", Args: cobra.NoArgs, RunE: needsVerb}
	c.AddCommand(sh.createKey(), sh.listKeys(), sh.revokeKey())
	return c
}

func (sh *shell) createKey() *cobra.Command {
	var scopes []string
	c := &cobra.Command{
		Use: "create NAME", Short: "Make an API key; it is shown this once", Args: cobra.ExactArgs(1),
		Long: "Make an API key. It is shown this once; the server keeps only its hash.\n\n" +
			"Scopes are submit:ENDPOINT, read:ENDPOINT, admin:ENDPOINT (both, and purge),\n" +
			"with * for all endpoints, and control for managing endpoints and keys.",
		Example: "  flightline key create ci --scope submit:echo --scope read:echo",
		RunE: sh.with(func(ctx context.Context, api *client.Client, args []string) error {
			if len(scopes) == 0 {
				return &UsageError{errors.New("give the key at least one --scope, as submit:echo")}
			}
			k, err := api.Keys().Create(ctx, client.KeySpec{Name: args[0], Scopes: scopes})
			if err != nil {
				return err
			}
			return sh.show(k, [][]string{
				{"ID", k.ID}, {"NAME", clean(k.Name)}, {"SCOPES", strings.Join(k.Scopes, " ")}, {"KEY", k.Plain},
			})
		}),
	}
	c.Flags().StringArrayVar(&scopes, "scope", nil, "what the key may do; repeat it for more")
	return c
}

func (sh *shell) listKeys() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the API keys", Args: cobra.NoArgs,
		RunE: sh.with(func(ctx context.Context, api *client.Client, _ []string) error {
			list, err := api.Keys().List(ctx)
			if err != nil {
				return err
			}
			rows := [][]string{{"ID", "NAME", "ENDS IN", "SCOPES", "CREATED"}}
			for _, k := range list {
				rows = append(rows, []string{k.ID, clean(k.Name), clean(k.Last4), strings.Join(k.Scopes, " "), when(k.Created)})
			}
			return sh.show(list, rows)
		}),
	}
}

func (sh *shell) revokeKey() *cobra.Command {
	return &cobra.Command{
		Use: "revoke ID", Short: "Make an API key worthless", Args: cobra.ExactArgs(1),
		RunE: sh.with(func(ctx context.Context, api *client.Client, args []string) error {
			if err := api.Keys().Revoke(ctx, args[0]); err != nil {
				return err
			}
			return sh.show(map[string]string{"revoked": args[0]}, [][]string{{"REVOKED", args[0]}})
		}),
	}
}
