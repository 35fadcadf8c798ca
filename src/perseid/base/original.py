"""Keys of the original's configuration that all its processes share and that none here has an option for.

Names are those of NettyServerConfig, NettyClientConfig and of the metrics exporters, RocketMQ 5.5.0.
"""

from __future__ import annotations

from perseid.base.config import Ignored

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

_SIGNED = "each request's signature is checked, and no class of Java's is run"
_POLICIES = "policies decide about each request, and no class of Java's is run"
_IN_FILES = "users and policies are in files of ours, or in this one"
_CLASSES = (
    ("authenticationProvider", ("authentication.provider.DefaultAuthenticationProvider",), _SIGNED),
    (
        "authenticationStrategy",
        (
            "authentication.strategy.StatelessAuthenticationStrategy",
            "authentication.strategy.StatefulAuthenticationStrategy",
        ),
        _SIGNED,
    ),
    ("authenticationMetadataProvider", ("authentication.provider.LocalAuthenticationMetadataProvider",), _IN_FILES),
    ("authorizationProvider", ("authorization.provider.DefaultAuthorizationProvider",), _POLICIES),
    (
        "authorizationStrategy",
        (
            "authorization.strategy.StatelessAuthorizationStrategy",
            "authorization.strategy.StatefulAuthorizationStrategy",
        ),
        _POLICIES,
    ),
    ("authorizationMetadataProvider", ("authorization.provider.LocalAuthorizationMetadataProvider",), _IN_FILES),
)
"""Key, its usual classes, and what is so of others."""

AUTH_CLASSES = tuple(
    Ignored(key, tuple(f"org.apache.rocketmq.auth.{name}".lower() for name in usual), why)
    for key, usual, why in _CLASSES
)
"""Keys of users and permissions that name classes of the original's."""

AUTH_CACHES = frozenset(
    (
        "aclCacheExpiredSecond",
        "aclCacheMaxNum",
        "aclCacheRefreshSecond",
        "authConfigPath",
        "clusterName",
        "configName",
        "statefulAuthenticationCacheExpiredSecond",
        "statefulAuthenticationCacheMaxNum",
        "statefulAuthorizationCacheExpiredSecond",
        "statefulAuthorizationCacheMaxNum",
        "userCacheExpiredSecond",
        "userCacheMaxNum",
        "userCacheRefreshSecond",
    )
)
"""Of the same: caches, of which there is one here."""
