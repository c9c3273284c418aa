"""Small random models of the transformers library, one of each architecture."""

import copy
import warnings

import torch
from torch import nn

# Sizes, in the words of the configs

B, L, S, LAYERS, MLP, WORDS = 2, 7, 5, 2, 32, 29
MARKS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
WIDE = {"hidden_size": 32, "num_hidden_layers": LAYERS, "num_attention_heads": 4}
WIDE |= {"intermediate_size": MLP}
TEXT = {**WIDE, **MARKS, "vocab_size": WORDS}
GROUPS = {**TEXT, "num_key_value_heads": 2}
SHORT = {"max_position_embeddings": 64}
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
FINE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "head_dim": 8}
ROUTED = {"n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1}
WINDOW = {"sliding_window": 3}
GPT = {"vocab_size": WORDS, "n_embd": 32, "n_layer": LAYERS, "n_head": 4, "n_positions": 64}
SSM = {"mamba_n_heads": 4, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_chunk_size": 8}
T5 = {"vocab_size": WORDS, "d_model": 32, "d_kv": 8, "d_ff": MLP, "num_layers": LAYERS}
T5 |= {"num_heads": 4, "pad_token_id": 0, "decoder_start_token_id": 0}
BART = {"vocab_size": WORDS, "d_model": 32, **SHORT, **MARKS, "decoder_start_token_id": 2}
BART |= {f"{part}_layers": LAYERS for part in ("encoder", "decoder")}
BART |= {f"{part}_attention_heads": 4 for part in ("encoder", "decoder")}
BART |= {f"{part}_ffn_dim": MLP for part in ("encoder", "decoder")}
IMAGE = {**WIDE, "image_size": 16, "patch_size": 8}
STAGES = {"image_size": 16, "patch_size": 2, "embed_dim": 16, "depths": [1, 1], "num_heads": [2, 4]}
SOUND = {**WIDE, "vocab_size": WORDS, "conv_dim": (16, 16), "conv_stride": (5, 2)}
SOUND |= {"conv_kernel": (10, 3), "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 16}
SOUND |= {"num_conv_pos_embedding_groups": 4}
BOTH = {"text_config": {**TEXT, **SHORT}, "vision_config": IMAGE}


def tokens(length=L):
    return torch.randint(3, WORDS, (B, length))


def text():
    return {"input_ids": tokens()}


def two_texts():
    return {"input_ids": tokens(), "decoder_input_ids": tokens(S)}


def image():
    return {"pixel_values": torch.randn(B, 3, 16, 16)}


def film():
    return {"pixel_values": torch.randn(B, 2, 3, 16, 16)}


def text_and_image():
    return {**text(), **image()}


def sound(length=400):
    return {"input_values": torch.randn(B, length)}


def spoken():
    return {"input_values": torch.randn(B, 2000), "decoder_input_ids": tokens(S)}


def spectrum():
    return {"input_features": torch.randn(B, 80, 60), "decoder_input_ids": tokens(S)}


def frames():
    return {"input_features": torch.randn(B, 40, 16), "decoder_input_ids": tokens(S)}


# kind: {name: (options of the config, inputs)}; the classes are <name>Model and <name>Config
MODELS = {
    "decoder": {
        "Llama": (GROUPS, text),
        "Mistral": ({**GROUPS, **WINDOW}, text),
        "Qwen3": ({**GROUPS, "head_dim": 8}, text),
        "Gemma2": ({**GROUPS, **WINDOW, "head_dim": 8}, text),
        "Gemma3Text": ({**GROUPS, **WINDOW, "head_dim": 8}, text),
        "Phi3": (GROUPS, text),
        "Olmo2": (GROUPS, text),
        "Cohere": (GROUPS, text),
        "StableLm": (GROUPS, text),
        "SmolLM3": (GROUPS, text),
        "NanoChat": (GROUPS, text),
        "GPT2": ({**GPT, **MARKS}, text),
        "GPTNeo": (
            {"vocab_size": WORDS, "hidden_size": 32, "num_layers": LAYERS, "num_heads": 4}
            | {"attention_types": [[["global", "local"], 1]], "window_size": 3, **SHORT, **MARKS},
            text,
        ),
        "GPTJ": ({**GPT, **MARKS, "rotary_dim": 4}, text),
        "GPTNeoX": (TEXT, text),
        "GPTBigCode": ({**GPT, **MARKS}, text),
        "OPT": ({**TEXT, **SHORT, "ffn_dim": MLP, "word_embed_proj_dim": 32}, text),
        "Falcon": (TEXT, text),
        "CTRL": ({**GPT, "dff": MLP}, text),
        "Bloom": (
            {"vocab_size": WORDS, "hidden_size": 32, "n_layer": LAYERS, "n_head": 4, **MARKS},
            text,
        ),
        "Mpt": (
            {"vocab_size": WORDS, "d_model": 32, "n_layers": LAYERS, "n_heads": 4, **MARKS},
            text,
        ),
        "CodeGen": ({**GPT, **MARKS, "rotary_dim": 4}, text),
        "XGLM": (
            {"vocab_size": WORDS, "d_model": 32, "ffn_dim": MLP, "num_layers": LAYERS}
            | {"attention_heads": 4, **SHORT, **MARKS},
            text,
        ),
        "OpenAIGPT": ({**GPT, **MARKS}, text),
        "DiffLlama": (GROUPS, text),
    },
    "mixture": {
        "Mixtral": ({**GROUPS, **EXPERTS}, text),
        "Qwen3Moe": ({**GROUPS, **FINE}, text),
        "Olmoe": ({**GROUPS, "num_experts": 4, "num_experts_per_tok": 2}, text),
        "Glm4Moe": ({**GROUPS, **FINE, **ROUTED, "first_k_dense_replace": 1}, text),
        "DeepseekV3": (
            {**TEXT, **ROUTED, "num_key_value_heads": 4, "q_lora_rank": 8, "kv_lora_rank": 9}
            | {"v_head_dim": 8, "qk_nope_head_dim": 4, "qk_rope_head_dim": 6},
            text,
        ),
        "Llama4Text": (
            {**GROUPS, **EXPERTS, "head_dim": 8, "intermediate_size_mlp": 32},
            text,
        ),
    },
    "sinks": {
        "GptOss": ({**GROUPS, **EXPERTS, "head_dim": 8}, text),
        "MiMoV2Flash": (
            {**GROUPS, **ROUTED, **WINDOW, "head_dim": 8, "v_head_dim": 8, "swa_head_dim": 8}
            | {"swa_v_head_dim": 8, "swa_num_attention_heads": 4, "swa_num_key_value_heads": 2}
            | {"moe_intermediate_size": 16},
            text,
        ),
        "GraniteSWA": ({**GROUPS, **WINDOW}, text),
    },
    "shared": {
        "Albert": ({**TEXT, "embedding_size": 16, "num_hidden_layers": 3}, text),
        "HrmText": (GROUPS, text),
        "Zamba2": (
            {**TEXT, "num_key_value_heads": 4, "layers_block_type": ["mamba", "hybrid"]}
            | {"mamba_headdim": 8, "n_mamba_heads": 8, "mamba_d_state": 8, "num_mem_blocks": 1},
            text,
        ),
    },
    "hybrid": {
        "RecurrentGemma": (
            {**GROUPS, "num_hidden_layers": 3, "lru_width": 32, "attention_window_size": 3},
            text,
        ),
        "Jamba": (
            {**GROUPS, "attn_layer_period": 2, "attn_layer_offset": 1, "use_mamba_kernels": False}
            | {"num_experts": 2, "num_experts_per_tok": 1, "mamba_dt_rank": 4},
            text,
        ),
        "Qwen3Next": (
            {**GROUPS, **FINE, "linear_num_value_heads": 4, "linear_num_key_heads": 2}
            | {"linear_key_head_dim": 8, "linear_value_head_dim": 8}
            | {"shared_expert_intermediate_size": 16}
            | {"layer_types": ["linear_attention", "full_attention"]},
            text,
        ),
        "FalconH1": ({**GROUPS, **SSM, "mamba_d_ssm": 32, "mamba_n_groups": 1}, text),
        "Lfm2": ({**GROUPS, "layer_types": ["conv", "full_attention"]}, text),
        "MiniMax": (
            {**GROUPS, **EXPERTS, "head_dim": 8, "block_size": 4}
            | {"layer_types": ["linear_attention", "full_attention"]},
            text,
        ),
    },
    "encoder": {
        "Bert": ({**TEXT, **SHORT}, text),
        "Roberta": ({**TEXT, **SHORT}, text),
        "Electra": ({**TEXT, **SHORT}, text),
        "DistilBert": (
            {"vocab_size": WORDS, "dim": 32, "n_layers": LAYERS, "n_heads": 4, "hidden_dim": MLP}
            | SHORT,
            text,
        ),
        "ModernBert": ({**TEXT, "cls_token_id": 1, "sep_token_id": 2, "local_attention": 4}, text),
        "MobileBert": (
            {**TEXT, "embedding_size": 16, "true_hidden_size": 32, "intra_bottleneck_size": 32},
            text,
        ),
        "Esm": ({**TEXT, "mask_token_id": 3, "position_embedding_type": "rotary"}, text),
        "DebertaV2": ({**TEXT, "relative_attention": True, "pos_att_type": ["c2p"]}, text),
        "MPNet": (TEXT, text),
        "RoFormer": ({**TEXT, "embedding_size": 32}, text),
        "LayoutLMv3": (
            {**TEXT, **SHORT, "visual_embed": False, "coordinate_size": 4, "shape_size": 8},
            text,
        ),
        "XLM": ({"vocab_size": WORDS, "emb_dim": 32, "n_layers": LAYERS, "n_heads": 4}, text),
        "XLNet": (
            {"vocab_size": WORDS, "d_model": 32, "n_layer": LAYERS, "n_head": 4, "d_inner": MLP},
            text,
        ),
        "Funnel": (
            {"vocab_size": WORDS, "d_model": 32, "n_head": 4, "d_head": 8, "d_inner": MLP}
            | {"block_sizes": [1, 1]},
            text,
        ),
        "SqueezeBert": ({**TEXT, "embedding_size": 32}, text),
        "ConvBert": ({**TEXT, "embedding_size": 32}, text),
        "BigBird": ({**TEXT, "attention_type": "original_full"}, text),
        "Longformer": ({**TEXT, "attention_window": [4, 4]}, text),
    },
    "encoder and decoder": {
        "T5": (T5, two_texts),
        "UMT5": (T5, two_texts),
        "SwitchTransformers": ({**T5, "num_experts": 2, "num_decoder_layers": 2}, two_texts),
        "LongT5": (T5, two_texts),
        "T5Gemma": (
            {part: {**GROUPS, "head_dim": 8} for part in ("encoder", "decoder")},
            two_texts,
        ),
        "Bart": (BART, two_texts),
        "MBart": (BART, two_texts),
        "Pegasus": (BART, two_texts),
        "Marian": (BART, two_texts),
        "LED": (
            {**BART, "attention_window": 4, "max_encoder_position_embeddings": 64}
            | {"max_decoder_position_embeddings": 64},
            two_texts,
        ),
        "ProphetNet": (
            {"vocab_size": WORDS, "hidden_size": 32, **SHORT, **MARKS}
            | {f"{part}_ffn_dim": MLP for part in ("encoder", "decoder")}
            | {f"num_{part}_layers": LAYERS for part in ("encoder", "decoder")}
            | {f"num_{part}_attention_heads": 4 for part in ("encoder", "decoder")},
            two_texts,
        ),
    },
    "vision": {
        "ViT": (IMAGE, image),
        "DeiT": (IMAGE, image),
        "Dinov2WithRegisters": (IMAGE, image),
        "DINOv3ViT": (IMAGE, image),
        "Beit": (IMAGE, image),
        "CLIP": (BOTH, text_and_image),
        "Siglip": (BOTH, text_and_image),
        "Swin": ({**STAGES, "window_size": 4}, image),
        "Swinv2": ({**STAGES, "window_size": 4}, image),
        "Segformer": (
            {"num_encoder_blocks": 2, "depths": [1, 1], "sr_ratios": [2, 1], "strides": [2, 2]}
            | {"hidden_sizes": [16, 32], "num_attention_heads": [2, 4], "patch_sizes": [3, 3]}
            | {"mlp_ratios": [2, 2]},
            image,
        ),
        "VideoMAE": ({**IMAGE, "num_frames": 2, "tubelet_size": 2}, film),
        "Timesformer": ({**IMAGE, "num_frames": 2}, film),
        "Perceiver": (
            {"d_latents": 32, "d_model": 32, "num_latents": 6, "num_blocks": 1}
            | {"num_self_attends_per_block": 2}
            | {f"num_{part}_attention_heads": 4 for part in ("self", "cross")},
            lambda: {"inputs": torch.randn(B, L, 32)},
        ),
        "Hiera": (
            {"embed_dim": 16, "image_size": [16, 16], "patch_size": [3, 3], "patch_stride": [2, 2]}
            | {"patch_padding": [1, 1], "depths": [1, 1], "num_heads": [2, 4], "mlp_ratio": 2.0}
            | {"query_stride": [2, 2], "num_query_pool": 1, "masked_unit_size": [4, 4]},
            image,
        ),
    },
    "speech": {
        "Whisper": (
            {**BART, "num_mel_bins": 80, "max_source_positions": 30, "max_target_positions": 20},
            spectrum,
        ),
        "Wav2Vec2": (SOUND, sound),
        "Hubert": (SOUND, sound),
        "UniSpeechSat": (SOUND, sound),
        "Wav2Vec2Conformer": (SOUND, sound),
        "WavLM": (SOUND, sound),
        "Moonshine": (
            {"vocab_size": WORDS, "hidden_size": 32, "intermediate_size": MLP, **MARKS}
            | {f"{part}_num_hidden_layers": LAYERS for part in ("encoder", "decoder")}
            | {f"{part}_num_attention_heads": 4 for part in ("encoder", "decoder")},
            spoken,
        ),
        "Speech2Text": (
            {**BART, "max_source_positions": 60, "max_target_positions": 20}
            | {"input_feat_per_channel": 16, "input_channels": 1, "conv_channels": 16},
            frames,
        ),
        "AST": (
            {**WIDE, "patch_size": 8, "max_length": 24, "num_mel_bins": 16},
            lambda: {"input_values": torch.randn(B, 24, 16)},
        ),
    },
    "no softmax over keys": {
        "Mamba": ({"vocab_size": WORDS, "hidden_size": 32, "num_hidden_layers": LAYERS}, text),
        "FNet": ({**TEXT, **SHORT}, text),
        "Rwkv": ({"vocab_size": WORDS, "hidden_size": 32, "num_hidden_layers": LAYERS}, text),
        "Yoso": ({**TEXT, **SHORT}, text),
    },
}
KIND_OF = {name: kind for kind, models in MODELS.items() for name in models}


def made(name, **options):
    """A model with random weights, and its inputs."""
    import transformers

    given, inputs = MODELS[KIND_OF[name]][name]
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = getattr(transformers, f"{name}Config")(**copy.deepcopy(given))
        model = getattr(transformers, f"{name}Model")._from_config(config, **options)
    for part, parameter in model.named_parameters():
        if "sink" in part or (parameter.ndim > 1 and "norm" not in part.lower()):
            nn.init.normal_(parameter, std=0.3)
    return model.eval(), inputs()
