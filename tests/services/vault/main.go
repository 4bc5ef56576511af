// Command vault is a Vault server for tests: the real core, unsealed, on 127.0.0.1.
//
// Its storage is in memory, or with -storage in a folder, over which another process of it goes on.
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
	"path/filepath"
	"syscall"

	"github.com/hashicorp/go-hclog"
	kubernetes "github.com/hashicorp/vault-plugin-auth-kubernetes"
	"github.com/hashicorp/vault/builtin/credential/approle"
	"github.com/hashicorp/vault/builtin/logical/transit"
	vaulthttp "github.com/hashicorp/vault/http"
	"github.com/hashicorp/vault/internalshared/configutil"
	"github.com/hashicorp/vault/sdk/helper/consts"
	"github.com/hashicorp/vault/sdk/logical"
	"github.com/hashicorp/vault/sdk/physical"
	"github.com/hashicorp/vault/sdk/physical/file"
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

// made is what an operator keeps of an initialised Vault; beside a folder of storage it is kept in a file.
type made struct {
	Shares    [][]byte `json:"shares"`
	RootToken string   `json:"root_token"`
}

func openStorage(folder string, logger hclog.Logger) (physical.Backend, error) {
	if folder == "" {
		return inmem.NewInmem(nil, logger)
	}
	return file.NewFileBackend(map[string]string{"path": filepath.Join(folder, "storage")}, logger)
}

func newCore(folder string) (*vault.Core, error) {
	logger := hclog.New(&hclog.LoggerOptions{Level: hclog.Error, Output: os.Stderr})
	storage, err := openStorage(folder, logger)
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

// initialize makes the one key share and the root token, or reads those of the process before.
func initialize(core *vault.Core, folder string) (made, error) {
	var kept made
	place := filepath.Join(folder, "made.json")
	if text, err := os.ReadFile(place); folder != "" && err == nil {
		return kept, json.Unmarshal(text, &kept)
	}
	shares := &vault.SealConfig{SecretShares: 1, SecretThreshold: 1, StoredShares: 1}
	result, err := core.Initialize(context.Background(), &vault.InitParams{BarrierConfig: shares, RecoveryConfig: shares})
	if err != nil {
		return kept, err
	}
	kept = made{result.SecretShares, result.RootToken}
	if folder == "" {
		return kept, nil
	}
	text, err := json.Marshal(kept)
	if err != nil {
		return kept, err
	}
	return kept, os.WriteFile(place, text, 0o600)
}

// unseal opens the core with its key share and gives its root token.
func unseal(core *vault.Core, folder string) (string, error) {
	kept, err := initialize(core, folder)
	if err != nil {
		return "", err
	}
	for _, share := range kept.Shares {
		if _, err := core.Unseal(share); err != nil {
			return "", err
		}
	}
	if core.Sealed() {
		return "", fmt.Errorf("still sealed after %d key shares", len(kept.Shares))
	}
	return kept.RootToken, nil
}

func run(port int, folder string) error {
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return err
	}
	core, err := newCore(folder)
	if err != nil {
		return err
	}
	properties := &vault.HandlerProperties{Core: core, ListenerConfig: &configutil.Listener{}}
	server := &http.Server{Handler: vaulthttp.Handler.Handler(properties)}
	token, err := unseal(core, folder)
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
	folder := flag.String("storage", "", "folder that keeps everything; storage is in memory without it")
	flag.Parse()
	if err := run(*port, *folder); err != nil {
		log.Fatal(err)
	}
}
