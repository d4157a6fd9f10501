//go:build linux

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/brokertest"
	"github.com/haagent/haagent/agent/control"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/agent/stock"
	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/remoting"
)

// pki is a directory with an authority and two certificates from it, each with its
// key: NAME.pem and NAME-key.pem. Brokers read no Ed25519.
func pki(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	var ca *x509.Certificate
	var caKey *ecdsa.PrivateKey
	for i, name := range []string{"ca", "broker", "client"} {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		c := &x509.Certificate{SerialNumber: big.NewInt(int64(i + 1)), Subject: pkix.Name{CommonName: name}, BasicConstraintsValid: true,
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
		if ca == nil {
			c.IsCA, c.KeyUsage = true, x509.KeyUsageCertSign
			ca, caKey = c, key
		}
		der, err := x509.CreateCertificate(rand.Reader, c, ca, &key.PublicKey, caKey)
		if err != nil {
			t.Fatal(err)
		}
		pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		for file, block := range map[string]*pem.Block{name + ".pem": {Type: "CERTIFICATE", Bytes: der}, name + "-key.pem": {Type: "PRIVATE KEY", Bytes: pkcs8}} {
			if err := os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(block), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

// startTLSBroker starts a broker that demands TLS, and a certificate from its
// clients.
func startTLSBroker(t *testing.T, v brokertest.Version, dir string) (*brokertest.Broker, *stock.BrokerTLS) {
	t.Helper()
	file := func(name string) string { return filepath.Join(dir, name) }
	own := &stock.BrokerTLS{CA: file("ca.pem"), Cert: file("client.pem"), Key: file("client-key.pem")}
	pair, err := tls.LoadX509KeyPair(own.Cert, own.Key)
	if err != nil {
		t.Fatal(err)
	}
	flags := []string{"-Dtls.enable=false"} // there is no name server to speak it with
	for property, value := range map[string]string{"mode": "enforcing", "certPath": file("broker.pem"), "keyPath": file("broker-key.pem"),
		"need.client.auth": "require", "authClient": "true", "trustCertPath": file("ca.pem")} {
		flags = append(flags, "-Dtls.server."+property+"="+value)
	}
	return brokertest.StartBroker(t, brokertest.BrokerOptions{Version: v, JVMFlags: append(flags, "-Dtls.test.mode.enable=false"),
		TLS: &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}}}), own
}

// store sends messages as a producer would, and returns where the log ends then.
func store(t *testing.T, b *stock.Broker, count int) wire.PhyOffset {
	t.Helper()
	for i := range count {
		fields := map[string]string{"producerGroup": "p", "topic": "orders", "defaultTopic": "TBW102", "defaultTopicQueueNums": "4", "queueId": "0", "sysFlag": "0",
			"bornTimestamp": strconv.FormatInt(time.Now().UnixMilli(), 10), "flag": "0", "properties": "", "reconsumeTimes": "0", "unitMode": "false"}
		if _, err := b.Raw(t.Context(), remoting.SendMessage, fields, []byte("message "+strconv.Itoa(i))); err != nil {
			t.Fatal(err)
		}
	}
	var info stock.RuntimeInfo
	waitFor(t, "the end of the broker's log", func() (string, bool) {
		var err error
		if info, err = b.RuntimeInfo(t.Context()); err != nil && !errors.Is(err, stock.ErrNotReady) {
			t.Fatal(err)
		}
		return "", err == nil
	})
	return info.MaxOffset
}

// TestBrokerTLS: agents on either side of a broker that demands TLS and a
// certificate, and what is said where one of the options is missing.
func TestBrokerTLS(t *testing.T) {
	t.Parallel() // most of the time is waiting
	dir := pki(t)
	broker, own := startTLSBroker(t, brokertest.V533, dir)
	client := stock.NewBroker(broker.Addr(), stock.BrokerOptions{TLS: own, Timeout: patience})
	defer client.Close()
	end := store(t, client, 20)

	speak := []string{"--broker-tls", "--broker-tls-ca", own.CA}
	full := append(speak, "--broker-tls-cert", own.Cert, "--broker-tls-key", own.Key)
	slave := []string{"--role", "slave", "--dir", t.TempDir(), "--master", broker.Addr(), "--http", ""}
	for _, c := range []struct {
		args      []string
		code, try string
	}{
		{nil, "broker_hangs_up", "--broker-tls"},
		{[]string{"--broker-tls"}, "broker_certificate", "--broker-tls-ca"},
		{speak, "broker_refuses_tls", "--broker-tls-cert"},
	} {
		f := examined(t, exitOK, append(slave, c.args...)...)["broker"]
		f.wants(t, odd, c.code)
		if !strings.Contains(f.Try, c.try) {
			t.Errorf("with %v one is told to %q", c.args, f.Try)
		}
	}
	examined(t, exitOK, append(slave, full...)...)["broker"].wants(t, fine, "ASYNC_MASTER")
	misled := append([]string{"--role", "slave", "--dir", t.TempDir(), "--master", broker.HAAddr(), "--http", ""}, full...)
	examined(t, exitOK, misled...)["broker"].wants(t, odd, "not_remoting") // never sent a ClientHello

	// The log comes over the HA port, which is asked of the remoting port.
	startAgent(t, t.TempDir(), "--master", broker.Addr()).waitCode(state.ProtocolError, "broker_hangs_up")
	replica := startAgent(t, t.TempDir(), append(full, "--master", broker.Addr())...)
	replica.waitStatus("everything", func(s control.Status) bool { return s.State == state.Streaming && s.Offsets.Verified >= end })
	topics := filepath.Join(replica.dir, "config", "topics.json")
	waitFor(t, topics, func() (string, bool) {
		text, err := os.ReadFile(topics)
		return string(text), err == nil && strings.Contains(string(text), "orders")
	})

	master := startProcess(t, testBinary(t), broker.Dir(), append(full, "--role", "master", "--dir", broker.Dir(), "--broker", broker.Addr(),
		"--gossip-bind", "127.0.0.1:0", "--link-bind", "127.0.0.1:0", "--http", "127.0.0.1:0")...)
	master.waitStatus("the broker's own end", func(s control.Status) bool { return s.State == state.Serving && s.Offsets.Verified >= end })
	if text := master.log.String(); !strings.Contains(text, "the local broker tells its end") {
		t.Errorf("the master agent does not know its broker:\n%s", text)
	}
}
