"""Keys of the original's configuration that all its processes share and that none here has an option for.

Names are those of NettyServerConfig, NettyClientConfig and of the metrics exporters, RocketMQ 5.5.0.
"""

from __future__ import annotations

from perseid.base.config import Ignored, Refusal

NETTY = frozenset(
    (
        "channelNotActiveInterval",
        "clientAsyncSemaphoreValue",
        "clientCallbackExecutorThreads",
        "clientChannelMaxIdleTimeSeconds",
        "clientCloseSocketIfTimeout",
        "clientOnewaySemaphoreValue",
        "clientPooledByteBufAllocatorEnable",
        "clientSocketRcvBufSize",
        "clientSocketSndBufSize",
        "clientWorkerThreads",
        "connectTimeoutMillis",
        "disableCallbackExecutor",
        "disableNettyWorkerGroup",
        "enableReconnectForGoAway",
        "enableShutdownGracefully",
        "isScanAvailableNameSrv",
        "maxReconnectIntervalTimeSeconds",
        "scanAvailableNameSrv",
        "serverAsyncSemaphoreValue",
        "serverCallbackExecutorThreads",
        "serverNettyWorkerGroupEnable",
        "serverOnewaySemaphoreValue",
        "serverPooledByteBufAllocatorEnable",
        "serverSelectorThreads",
        "serverSocketBacklog",
        "serverSocketRcvBufSize",
        "serverSocketSndBufSize",
        "serverWorkerThreads",
        "shutdownWaitTimeSeconds",
        "socksProxyConfig",
        "useEpollNativeSelector",
        "writeBufferHighWaterMark",
        "writeBufferLowWaterMark",
    )
)
"""Of threads, buffers and sockets."""

NO_USERS = tuple(
    Refusal(key, ("false",), why, "tls.server.need.client.auth=require keeps strangers out")
    for key, why in (
        ("authenticationEnabled", "whoever asks would have to be a user; only brokers have users here"),
        ("authorizationEnabled", "users would need permissions; only brokers have users here"),
    )
)

METRICS = frozenset(
    (
        "enableConnectionMetrics",
        "enableLagAndDlqMetrics",
        "enableMessageStoreMetrics",
        "enablePopMetrics",
        "enableRemotingMetrics",
        "enableRequestMetrics",
        "enableStatsMetrics",
        "enableTransactionMetrics",
        "metricGrpcExporterIntervalInMills",
        "metricGrpcExporterTimeOutInMills",
        "metricLoggingExporterIntervalInMills",
        "metricsExportBatchMaxDataPoints",
        "metricsGrpcExporterHeader",
        "metricsGrpcExporterTarget",
        "metricsInDelta",
        "metricsLabel",
        "metricsOtelCardinalityLimit",
        "metricsPromExporterHost",
        "metricsPromExporterPort",
    )
)
"""Of exporters of metrics, which `metricsExporterType` turns on."""

NO_METRICS = Ignored("metricsExporterType", ("disable", "0"), "no exporter of metrics is here")
