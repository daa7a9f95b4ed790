// A WebSocket transport for SDK v2, which has none.

import WebSocket from 'ws';

export class WebSocketTransport {
  constructor(url, { requestInit } = {}) {
    this.url = url;
    this.headers = requestInit?.headers;
  }

  start() {
    this.socket = new WebSocket(this.url, 'mcp', { headers: this.headers });
    this.socket.on('message', data => this.onmessage?.(JSON.parse(data.toString())));
    this.socket.on('close', code => ((this.closeCode = code), this.onclose?.()));
    return new Promise((resolve, reject) => {
      this.socket.once('open', resolve);
      this.socket.on('error', error => (reject(error), this.onerror?.(error)));
    });
  }

  send(message) {
    return new Promise((resolve, reject) =>
      this.socket.send(JSON.stringify(message), error => (error ? reject(error) : resolve()))
    );
  }

  async close() {
    if (this.socket.readyState === WebSocket.CLOSED) return;
    const gone = new Promise(resolve => this.socket.once('close', resolve));
    this.socket.close();
    await gone;
  }
}
