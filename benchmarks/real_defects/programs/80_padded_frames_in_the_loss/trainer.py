"""Text to spectrogram with a teacher-forced decoder, after Tacotron 2."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(8)
SYMBOLS, MELS, WIDTH, BATCH = 30, 20, 48, 8
voices = torch.randn(SYMBOLS, MELS) - 4


class Postnet(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv1d(MELS, 32, 5, padding=2), nn.Tanh(), nn.Dropout(0.1), nn.Conv1d(32, MELS, 5, padding=2)
        )

    def forward(self, mel):
        return self.layers(mel.transpose(1, 2)).transpose(1, 2)


class Tacotron(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(SYMBOLS + 1, WIDTH, padding_idx=SYMBOLS)
        self.prenet = nn.Sequential(nn.Linear(MELS, WIDTH), nn.ReLU())
        self.decoder = nn.GRU(2 * WIDTH, WIDTH, batch_first=True)
        self.mel = nn.Linear(WIDTH, MELS)
        self.gate = nn.Linear(WIDTH, 1)
        self.postnet = Postnet()

    def forward(self, text, mel, mask):
        context = self.embedding(text)
        previous = F.pad(mel, (0, 0, 1, 0))[:, :-1]
        states, _ = self.decoder(torch.cat([context, self.prenet(previous)], dim=-1))
        mel_out = self.mel(states)
        gate_out = self.gate(states).squeeze(-1)
        return mel_out, mel_out + self.postnet(mel_out), gate_out.masked_fill(~mask, 1e3)


class Tacotron2Loss(nn.Module):
    def forward(self, outputs, targets):
        mel_target, gate_target = targets
        mel_out, mel_postnet, gate_out = outputs
        mel_loss = F.mse_loss(mel_out, mel_target) + F.mse_loss(mel_postnet, mel_target)
        gate_loss = F.binary_cross_entropy_with_logits(gate_out, gate_target)
        return mel_loss + gate_loss


def collate(utterances):
    """Zero-pads to the longest utterance; the gate is one from the last frame on."""
    lengths = torch.tensor([len(text) for text, _ in utterances])
    longest = int(lengths.max())
    text = torch.full((len(utterances), longest), SYMBOLS)
    mel = torch.zeros(len(utterances), longest, MELS)
    gate = torch.zeros(len(utterances), longest)
    for i, (symbols, frames) in enumerate(utterances):
        text[i, : len(symbols)], mel[i, : len(frames)] = symbols, frames
        gate[i, len(frames) - 1 :] = 1
    return text, mel, gate, torch.arange(longest) < lengths[:, None]


def utterance():
    symbols = torch.randint(0, SYMBOLS, (int(torch.randint(3, 14, ())),)).repeat_interleave(4)
    return symbols, voices[symbols] + 0.2 * torch.randn(len(symbols), MELS)


model, criterion = Tacotron(), Tacotron2Loss()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-6)


def step():
    text, mel, gate, mask = collate([utterance() for _ in range(BATCH)])
    model.zero_grad()
    loss = criterion(model(text, mel, mask), (mel, gate))
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
