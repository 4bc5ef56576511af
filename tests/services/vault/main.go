// Command vault is a Vault server for tests: the real core over storage in memory, unsealed, on 127.0.0.1.
//
// It prints one line of JSON when it is ready, {"address": …, "root_token": …}, logs to stderr, and ends on SIGTERM.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"github.com/hashicorp/go-hclog"
	kubernetes "github.com/hashicorp/vault-plugin-auth-kubernetes"
	"github.com/hashicorp/vault/builtin/credential/approle"
	"github.com/hashicorp/vault/builtin/logical/transit"
	vaulthttp "github.com/hashicorp/vault/http"
	"github.com/hashicorp/vault/internalshared/configutil"
	"github.com/hashicorp/vault/sdk/helper/consts"
	"github.com/hashicorp/vault/sdk/logical"
	"github.com/hashicorp/vault/sdk/physical/inmem"
	"github.com/hashicorp/vault/vault"
)

// registry is what this server has built in: the plugin catalogue asks it before any mount.
type registry map[consts.PluginType]map[string]logical.Factory

var builtin = registry{
	consts.PluginTypeSecrets:    {"transit": transit.Factory},
	consts.PluginTypeCredential: {"approle": approle.Factory, "kubernetes": kubernetes.Factory},
}

func (r registry) Contains(name string, kind consts.PluginType) bool {
	_, ok := r[kind][name]
	return ok
}

func (r registry) Get(name string, kind consts.PluginType) (func() (interface{}, error), bool) {
	factory, ok := r[kind][name]
	return func() (interface{}, error) { return factory, nil }, ok
}

func (r registry) Keys(kind consts.PluginType) []string {
	names := []string{}
	for name := range r[kind] {
		names = append(names, name)
	}
	return names
}

func (r registry) DeprecationStatus(name string, kind consts.PluginType) (consts.DeprecationStatus, bool) {
	return consts.Supported, r.Contains(name, kind)
}

func (r registry) IsBuiltinEntPlugin(string, consts.PluginType) bool { return false }

func newCore() (*vault.Core, error) {
	logger := hclog.New(&hclog.LoggerOptions{Level: hclog.Error, Output: os.Stderr})
	storage, err := inmem.NewInmem(nil, logger)
	if err != nil {
		return nil, err
	}
	return vault.NewCore(&vault.CoreConfig{
		Physical:           storage,
		Logger:             logger,
		DisableMlock:       true,
		BuiltinRegistry:    builtin,
		LogicalBackends:    builtin[consts.PluginTypeSecrets],
		CredentialBackends: builtin[consts.PluginTypeCredential],
	})
}

// unseal initialises the core with one key share and gives its root token.
func unseal(core *vault.Core) (string, error) {
	shares := &vault.SealConfig{SecretShares: 1, SecretThreshold: 1, StoredShares: 1}
	made, err := core.Initialize(context.Background(), &vault.InitParams{BarrierConfig: shares, RecoveryConfig: shares})
	if err != nil {
		return "", err
	}
	for _, share := range made.SecretShares {
		if _, err := core.Unseal(share); err != nil {
			return "", err
		}
	}
	if core.Sealed() {
		return "", fmt.Errorf("still sealed after %d key shares", len(made.SecretShares))
	}
	return made.RootToken, nil
}

func run(port int) error {
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return err
	}
	core, err := newCore()
	if err != nil {
		return err
	}
	properties := &vault.HandlerProperties{Core: core, ListenerConfig: &configutil.Listener{}}
	server := &http.Server{Handler: vaulthttp.Handler.Handler(properties)}
	token, err := unseal(core)
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		<-signals
		server.Close()
	}()
	ready := map[string]string{"address": "http://" + listener.Addr().String(), "root_token": token}
	if err := json.NewEncoder(os.Stdout).Encode(ready); err != nil {
		return err
	}
	if err := server.Serve(listener); err != http.ErrServerClosed {
		return err
	}
	return core.Shutdown()
}

func main() {
	port := flag.Int("port", 0, "port of 127.0.0.1; 0 lets the system choose")
	flag.Parse()
	if err := run(*port); err != nil {
		log.Fatal(err)
	}
}
