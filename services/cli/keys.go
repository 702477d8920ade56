package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"flightline/shared/client"
	"flightline/shared/limit"
)

func (sh *shell) keyCommand() *cobra.Command {
	c := &cobra.Command{Use: "key", Short: "Make, list, limit and revoke API keys", Args: cobra.NoArgs, RunE: needsVerb}
	c.AddCommand(sh.createKey(), sh.listKeys(), sh.changeQuota(), sh.revokeKey())
	return c
}

func (sh *shell) createKey() *cobra.Command {
	var scopes []string
	var quota string
	c := &cobra.Command{
		Use: "create NAME", Short: "Make an API key; it is shown this once", Args: cobra.ExactArgs(1),
		Long: "Make an API key. It is shown this once; the server keeps only its hash.\n\n" +
			"Scopes are submit:ENDPOINT, read:ENDPOINT, admin:ENDPOINT (both, and purge),\n" +
			"with * for all endpoints, and control for managing endpoints and keys.\n\n" +
			"A quota bounds the key at all endpoints together, as FIELD=NUMBER with commas\n" +
			"between: requests to the queue API in 10 s (default 20000), concurrent requests\n" +
			"(2000), endpoints that the key created (2000), waitingJobs, the key's jobs that\n" +
			"wait or run (1000000), and waitingBytes, those of their inputs (10737418240, 10\n" +
			"GiB). 0 means no bound.",
		Example: "  flightline key create ci --scope submit:echo --scope read:echo --quota requests=500,concurrent=20",
		RunE: sh.with(func(ctx context.Context, api *client.Client, args []string) error {
			if len(scopes) == 0 {
				return &UsageError{errors.New("give the key at least one --scope, as submit:echo")}
			}
			spec := client.KeySpec{Name: args[0], Scopes: scopes}
			if quota != "" {
				var err error
				if spec.Quota, err = limit.ParseQuota(quota); err != nil {
					return &UsageError{fmt.Errorf("--quota: %w", err)}
				}
			}
			k, err := api.Keys().Create(ctx, spec)
			if err != nil {
				return err
			}
			return sh.show(k, [][]string{
				{"ID", k.ID}, {"NAME", clean(k.Name)}, {"SCOPES", strings.Join(k.Scopes, " ")}, {"QUOTA", cmp.Or(k.Quota.String(), "default")}, {"KEY", k.Plain},
			})
		}),
	}
	c.Flags().StringArrayVar(&scopes, "scope", nil, "what the key may do; repeat it for more")
	c.Flags().StringVar(&quota, "quota", "", "what the key may ask for, as requests=500,waitingJobs=1000")
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
			rows := [][]string{{"ID", "NAME", "ENDS IN", "SCOPES", "QUOTA", "CREATED"}}
			for _, k := range list {
				rows = append(rows, []string{k.ID, clean(k.Name), clean(k.Last4), strings.Join(k.Scopes, " "), cmp.Or(k.Quota.String(), "default"), when(k.Created)})
			}
			return sh.show(list, rows)
		}),
	}
}

func (sh *shell) changeQuota() *cobra.Command {
	return &cobra.Command{
		Use: "quota ID FIELD=NUMBER…", Short: "Change the quota of an API key", Args: cobra.MinimumNArgs(2),
		Long: "Change the quota of an API key. Fields that are not named stay as they are;\n" +
			"FIELD=default takes one back to its default, default alone takes all. The\n" +
			"change holds within two seconds. \"flightline key create -h\" has the fields.",
		Example: "  flightline key quota 5f3c9ab2e1d04c7f8a6b5c4d3e2f1a0b requests=500 concurrent=default",
		RunE: sh.with(func(ctx context.Context, api *client.Client, args []string) error {
			change, err := limit.ParseQuotaChange(strings.Join(args[1:], ","))
			if err != nil {
				return &UsageError{err}
			}
			k, err := api.Keys().ChangeQuota(ctx, args[0], change)
			if err != nil {
				return err
			}
			return sh.show(k, [][]string{{"ID", k.ID}, {"NAME", clean(k.Name)}, {"QUOTA", cmp.Or(k.Quota.String(), "default")}})
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
